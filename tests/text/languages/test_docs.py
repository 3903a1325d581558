"""The page on languages shows what its example prints."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "languages.md"


def test_the_example_prints_what_the_page_shows() -> None:
    page = PAGE.read_text("utf-8")
    code, shown = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert printed.getvalue() == shown
