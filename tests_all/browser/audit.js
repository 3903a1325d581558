// Returns the accessibility problems of a page that can be found without a person.
() => {
  const problems = [];
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(".skip, .unseen, option, svg")) continue;
    const [one, other] = [rgba(getComputedStyle(element).color), ground(element)].map(luminance);
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast.toFixed(2)}: ${element.outerHTML.slice(0, 120)}`);
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), select")) {
    if (!field.labels.length) problems.push(`no label: ${field.outerHTML.slice(0, 120)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.ariaHidden && !svg.ariaLabel) problems.push(`no words for: ${svg.outerHTML.slice(0, 120)}`);
  }
  for (const id of [...document.querySelectorAll("[id]")].map((element) => element.id)) {
    if (document.querySelectorAll(`[id="${CSS.escape(id)}"]`).length > 1) problems.push(`two of ${id}`);
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
  if (document.documentElement.lang !== "en") problems.push("no language");
  return problems;
}
