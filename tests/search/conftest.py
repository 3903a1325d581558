import pytest

from shortlist.search.searcher import Searcher
from tests.fakes import TWINS, WORKPLACE, searcher


@pytest.fixture(scope="module")
def workplace() -> Searcher:
    return searcher(WORKPLACE)


@pytest.fixture(scope="module")
def by_words() -> Searcher:
    return searcher(WORKPLACE, dense=False)


@pytest.fixture(scope="module")
def twins() -> Searcher:
    """Three tools that words cannot tell apart: only the stages can."""
    return searcher(TWINS, dense=False)
