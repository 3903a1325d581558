"""The documentation: links that lead somewhere, and commands that exist."""

import re
import shlex
from pathlib import Path

import pytest
from release.distributions import ROOT
from release.links import broken_links

from shortlist.cli import _parser
from tests.cli.commands import typed_words

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_RUN = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(?:sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def typed(page: Path) -> list[str]:
    """Return the lines of a page's blocks that a user would type."""
    lines = [line for block in _BLOCK.findall(page.read_text("utf-8")) for line in block.splitlines()]
    return [
        line.removeprefix("$ ").partition("  #")[0].strip() for line in lines if re.match(r"(\$ )?shortlist ", line)
    ]


def test_every_link_leads_somewhere() -> None:
    assert list(broken_links([*PAGES, ROOT / "README.md"])) == []


def test_every_page_is_reached_from_the_first() -> None:
    first = (DOCS / "index.md").read_text("utf-8")
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES if "decisions" not in page.parts}
    seldom = {"index.md", "eras.md", "limits.md"}
    assert [page for page in sorted(pages - seldom) if f"({page})" not in first] == []


@pytest.mark.parametrize("words", typed_words(), ids=" ".join)
def test_every_command_has_an_example_that_the_slow_tests_run(words: list[str]) -> None:
    blocks = _RUN.findall((DOCS / "commands.md").read_text("utf-8"))
    examples = [shlex.split(line.partition("shortlist ")[2]) for block in blocks for line in block.splitlines()]
    assert any(example[: len(words)] == words for example in examples)


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in typed(page)}))
def test_an_example_is_accepted_by_its_command(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = shlex.split(line, comments=True)[1:]
    cut = given.index("--") if "--" in given else len(given)
    if given[:1] == ["COMMAND"]:
        return
    _parser(given).parse_args(given[:cut])
