"""`python -m release.site`: the documentation as a folder of web pages, after checking every link."""

import re
import shutil
import sys

from markdown_it import MarkdownIt

from release.distributions import ROOT
from release.links import anchors, broken_links

DOCS, OUT = ROOT / "docs", ROOT / "dist" / "site"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} – Shortlist</title><link rel="stylesheet" href="{root}style.css"></head>
<body><nav><a href="{root}index.html">Shortlist</a></nav><main>{body}</main></body></html>
"""
STYLE = """:root{color-scheme:light dark}
body{font:16px/1.55 system-ui,sans-serif;max-width:52rem;margin:0 auto;padding:1rem}
nav{border-bottom:1px solid #8884;padding:.5rem 0;margin-bottom:1rem}pre{overflow:auto;padding:.8rem;background:#8881}
code{font-family:ui-monospace,monospace;font-size:.92em}table{border-collapse:collapse;display:block;overflow:auto}
th,td{border:1px solid #8884;padding:.3rem .6rem;text-align:left;vertical-align:top}img{max-width:100%}
"""


def main() -> int:
    """Build every page; links that lead nowhere are named, and nothing is built."""
    pages = sorted(DOCS.rglob("*.md"))
    if problems := list(broken_links(pages)):
        print("\n".join(problems), file=sys.stderr)
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(DOCS, OUT, ignore=shutil.ignore_patterns("*.md"))
    (OUT / "style.css").write_text(STYLE, "utf-8")
    for page in pages:
        place = page.relative_to(DOCS)
        target = (OUT / place).with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_rendered(page.read_text("utf-8"), "../" * (len(place.parts) - 1)), "utf-8")
    print(f"{len(pages)} pages in {OUT.relative_to(ROOT)}; every link leads somewhere")
    return 0


def _rendered(text: str, root: str) -> str:
    body = MarkdownIt("commonmark").enable("table").render(text)
    body = re.sub(r'(href="(?!https?:)[^"#]*)\.md(["#])', r"\1.html\2", body)
    names = iter(list(anchors(text)))
    body = re.sub(r"<(h[1-6])>", lambda match: f'<{match[1]} id="{next(names, "")}">', body)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    return PAGE.format(title=title[1] if title else "Shortlist", root=root, body=body)


if __name__ == "__main__":
    sys.exit(main())
