"""Every snippet of the pages that need no framework runs and prints what the page shows."""

import pytest

from tests.library.snippets import DOCS, README, run_page


@pytest.mark.parametrize("page", ["library.md", "conversations.md", "frameworks/your-own-loop.md"])
def test_the_page_runs_as_printed(page: str) -> None:
    assert run_page(DOCS / page) >= 3


def test_the_readme_runs_as_printed() -> None:
    assert run_page(README) >= 1


def test_every_page_of_the_frameworks_is_run_by_a_test() -> None:
    pages = {page.name for page in (DOCS / "frameworks").glob("*.md")}
    tests = "".join(
        test.read_text()
        for folder in ("library", "frameworks")
        for test in (DOCS.parent / "tests" / folder).glob("test_*.py")
    )
    assert {page for page in pages if page not in tests} == set()
