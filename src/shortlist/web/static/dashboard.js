"use strict";

const POLL_MILLISECONDS = 2000;
const CHECK_MILLISECONDS = 5000;
const MOST_ROWS = 300;

// A time is written as so long ago; pointing at it shows the reader's own clock.
function showOwnTime(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.title = new Date(time.dateTime).toLocaleString();
  }
}

// Charts name hours in the reader's time zone.
function showOwnHours() {
  const day = { day: "2-digit", month: "short" };
  const hour = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  for (const label of document.querySelectorAll("[data-second]")) {
    const at = new Date(Number(label.dataset.second) * 1000);
    const written = at.toLocaleString("en-GB", label.dataset.local === "time" ? hour : { ...day, ...hour });
    label.textContent = written.replace(",", "") + (label.dataset.rest ?? "");
  }
}

// Copies the text of a field, where the browser allows it.
function offerCopies() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).value);
      button.textContent = "Copied";
    });
  }
}

// What was written as so long ago stays true while the page is open.
function keepTimesTrue() {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const time of document.querySelectorAll("time[datetime]")) {
    const passed = Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000);
    const unit = units.find(([size]) => passed >= size);
    time.textContent = unit ? `${Math.round(passed / unit[0])} ${unit[1]} ago` : passed < 10 ? "just now" : `${Math.round(passed)} s ago`;
  }
}

// A page of a gateway that has ended says so.
async function watchGateway(notice) {
  const answer = document.hidden ? null : await fetch("/static/icon.svg", { method: "HEAD", cache: "no-store" }).catch(() => "gone");
  if (answer) notice.hidden = answer !== "gone";
  setTimeout(watchGateway, CHECK_MILLISECONDS, notice);
}

// On a phone the menu scrolls sideways: begin where the reader is.
function showPlaceInMenu() {
  const here = document.querySelector(".bar nav [aria-current]");
  const menu = document.querySelector(".bar nav");
  if (here && menu) menu.scrollLeft = here.offsetLeft - menu.clientWidth / 2 + here.clientWidth / 2;
}

// The page of activity fetches what is new, and puts it on top.
function followActivity(table) {
  const body = table.tBodies[0];
  const pause = document.getElementById("pause");
  let paused = false;

  async function fetchNew() {
    const newest = body.rows.length ? body.rows[0].dataset.id : 0;
    const answer = await fetch(`${table.dataset.feed}&after=${newest}`);
    if (!answer.ok) return;
    const rows = document.createElement("tbody");
    rows.innerHTML = await answer.text();
    showOwnTime(rows);
    for (const row of rows.rows) row.classList.add("fresh");
    if (rows.rows.length) document.getElementById("none-yet")?.remove();
    body.prepend(...rows.rows);
    while (body.rows.length > MOST_ROWS) body.deleteRow(-1);
  }

  async function run() {
    if (!paused && !document.hidden) await fetchNew().catch(() => {});
    setTimeout(run, POLL_MILLISECONDS);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
  });
  setTimeout(run, POLL_MILLISECONDS);
}

showOwnTime(document);
showOwnHours();
offerCopies();
showPlaceInMenu();
setInterval(keepTimesTrue, CHECK_MILLISECONDS);
const notice = document.getElementById("gone");
if (notice) setTimeout(watchGateway, CHECK_MILLISECONDS, notice);
const activity = document.getElementById("activity");
if (activity) followActivity(activity);
