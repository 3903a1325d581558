"""What a newcomer is told to ask first shows what the search can do, with either model."""

import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.cli.stack import list_tools
from shortlist.config.settings import Settings
from shortlist.demo import FIRST_SEARCHES
from shortlist.demo.server import demo_settings
from shortlist.evals.datasets import demo_catalog
from shortlist.index.embedders import shipped
from shortlist.models import Query
from shortlist.search.searcher import Searcher
from tests.demo.bundle import tools

UMBRELLA, MONEY, SALESFORCE = FIRST_SEARCHES


@pytest.fixture(params=["from files", "as served"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    if request.param == "as served":
        return list_tools(Settings(servers=demo_settings()))
    return read_catalog(demo_catalog()).catalog


@pytest.mark.parametrize("tier", ["static", "small"])
def test_the_first_searches_find_their_tool_with_high_confidence_or_say_that_there_is_none(
    tier: str, catalog: Catalog
) -> None:
    searcher = Searcher(catalog, shipped(tier))
    searcher.prepare()
    found = {text: searcher.search(Query(text=text)) for text in FIRST_SEARCHES}
    assert (found[UMBRELLA].hits[0].tool.id, found[UMBRELLA].confidence.level) == ("weather/get_forecast", "high")
    assert (found[MONEY].hits[0].tool.id, found[MONEY].confidence.level) == ("stripe/create_refund", "high")
    assert found[SALESFORCE].confidence.level == "none"


def test_the_first_search_of_all_shares_no_word_with_its_tool() -> None:
    tool = tools()["weather/get_forecast"]
    said = f"{tool['name']} {tool['description']}".lower().replace("_", " ")
    assert not {word for word in UMBRELLA.lower().split() if len(word) > 3} & set(said.split())
