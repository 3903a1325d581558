"""Demo servers, and example queries for them."""

from pathlib import Path

CATALOG = Path(__file__).parent / "catalog"
"""Their tools, a file for each server."""

FIRST_SEARCHES = (
    "do I need an umbrella tomorrow",
    "give the customer their money back",
    "connect to Salesforce",
)
"""Asked as people ask: two without the name of the tool that does it, and one that no tool here does."""
