"""Which tools a command searches: those of a file, of the user's servers, or of the bundled demo."""

import argparse
from importlib import import_module
from pathlib import Path

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.progress import say
from shortlist.cli.vault import revealed
from shortlist.config.load import load_settings
from shortlist.config.settings import Settings
from shortlist.demo import CATALOG
from shortlist.errors import InvalidInput
from shortlist.paths import find_config
from shortlist.storage.opening import open_storage
from shortlist.text.queries import Expansions, read_expansions


def find_catalog(options: argparse.Namespace) -> tuple[Catalog, Expansions]:
    """Return the tools to search, named on stderr, and the user's expansions."""
    config = None if options.catalog else find_config(options.config)
    settings = revealed(load_settings(config)) if config is not None else Settings()
    expansions = read_expansions(*settings.expansions, *options.expansions)
    if config is not None:
        return _of_servers(settings), expansions
    if options.catalog is None:
        say("shortlist: no configuration: searching the bundled demo (`shortlist setup` adds your servers)")
    return read_tools(options.catalog or CATALOG), expansions


def read_tools(path: Path) -> Catalog:
    """Read a file or folder, and say what is wrong with it."""
    reading = read_catalog(path)
    for problem in reading.problems:
        say(f"shortlist: {problem}")
    return reading.catalog


def _of_servers(settings: Settings) -> Catalog:
    """Return the saved tool lists of the servers; connect to the servers if nothing is saved."""
    catalog = SavedCatalog(open_storage(settings.storage).catalogs, settings.servers).load()
    if not catalog.tools:
        # The servers and the client of their protocol take most of a second to import.
        catalog = import_module("shortlist.cli.stack").list_tools(settings)
    if not catalog.tools:
        why = "`shortlist doctor` explains why" if settings.servers else "add one with `shortlist add`"
        servers = "none of the servers lists any" if settings.servers else "it has no servers"
        raise InvalidInput(f"No tools in {settings.source}: {servers}; {why}.")
    servers = f"{len(catalog.members)} server{'' if len(catalog.members) == 1 else 's'}"
    say(f"shortlist: searching {len(catalog)} tools of {servers} in {settings.source}")
    unknown = [name for name in settings.servers if name not in catalog.servers]
    if unknown:
        say(f"shortlist: nothing is known yet of {', '.join(unknown)}: `shortlist tools` asks every server")
    return catalog
