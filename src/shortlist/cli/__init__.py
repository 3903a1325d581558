"""The command line: the only prints, the only place where parts are put together.

This module imports only small parts of the standard library: most of a start is imports, and `--help`, `--version` and
an interrupt should not pay for them.
"""

import argparse
import gc
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Set up": {
        "setup": ("connecting", "import your servers, connect your MCP clients and check that everything works"),
        "connect": ("connecting", "add the gateway to the configuration of MCP clients"),
        "disconnect": ("connecting", "remove the gateway from MCP clients and restore their files"),
        "import": ("importing", "import the servers that your MCP clients are configured with"),
        "doctor": ("doctor", "examine your servers: what is wrong, why, and how to fix it"),
        "add": ("adding", "add a server: a command, a URL, or a name in a registry"),
        "remove": ("adding", "remove a server from your configuration"),
        "enable": ("adding", "enable a disabled server or tool"),
        "disable": ("adding", "disable a server or a single tool without removing it"),
        "restart": ("adding", "restart a server of a running gateway"),
        "edit": ("adding", "open your configuration in an editor and check it"),
        "registry": ("adding", "search MCP registries and keep a copy of their list"),
        "config": ("configuring", "check the configuration; print its path, schema or reference"),
    },
    "Serve and use": {
        "serve": ("serving", "serve all configured MCP servers as one"),
        "daemon": ("daemon", "show or stop the gateway that your stdio clients share"),
        "status": ("serving", "connect to every server and show its state"),
        "tools": ("serving", "list tools, or show one"),
        "token": ("tokens", "create, list, revoke and rotate tokens for HTTP clients"),
        "secret": ("secrets", "store secrets that the configuration refers to"),
        "login": ("logins", "sign in to a server that needs a login"),
        "logout": ("logins", "delete the stored login to a server"),
        "call": ("serving", "call a tool; the exit status is 1 when it fails"),
        "toolsets": ("serving", "list toolsets with their size and token cost"),
        "logs": ("serving", "show the stderr of a server"),
        "review": ("trusting", "list, show, approve or reject held definitions"),
        "programs": ("programs", "save programs that worked, review them and offer them as tools"),
        "search": ("searching", "find tools for a sentence, a few words or a name"),
        "explain": ("searching", "explain why a tool ranks where it does"),
        "demo": ("searching", "search the bundled demo catalog"),
        "embed-info": ("searching", "describe the shipped models"),
    },
    "Observe": {
        "dashboard": ("dashboard", "serve the dashboard with recorded data and saved tools, without starting servers"),
        "stats": ("telemetry", "show usage statistics: recall, misses, ranks, tokens saved, latency, errors"),
        "events": ("telemetry", "show recorded events one by one"),
        "data": ("people", "export or erase what is kept about one caller"),
        "audit": ("auditing", "verify or export the audit log"),
        "storage": ("storing", "copy recorded data into a shared database"),
        "learned": ("learning", "show, export or clear what searches have learned from use"),
        "mine": ("learning", "write evaluation cases from recorded searches, to be reviewed before use"),
    },
    "Measure": {
        "eval": ("evals", "measure search quality on labelled queries"),
        "rank": ("evals", "rank tools for many queries, one JSON line each"),
        "compare": ("evals", "compare two runs, pipelines or embedders"),
        "ablate": ("evals", "measure a pipeline without each of its parts in turn"),
        "sweep": ("evals", "measure a pipeline over a range of values of one parameter"),
        "scan": ("trusting", "scan tool definitions for poisoned text; exit 1 when one is dangerous"),
        "lint": ("evals", "examine a catalog for tools that are hard to find"),
        "ab": ("experiments", "run A/B experiments on real use"),
        "replay": ("harness", "replay scenarios with several variants"),
        "run-tasks": ("harness", "let a model work on tasks with several setups"),
    },
}
"""Each command with the module that has it and one line of help; only that module is imported."""

COMMANDS: Mapping[str, tuple[str, str]] = {name: entry for group in GROUPS.values() for name, entry in group.items()}

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
YOUNG_OBJECTS = (5_000, 3, 700)
"""How many new objects start a garbage collection, and how many of those one of the next generation.

Python's 700 objects are for small programs; of the second generation 20,000 are walked in a few milliseconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 1 when it failed, 2 when the input has to change."""
    gc.set_threshold(*YOUNG_OBJECTS)
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def main_mcp() -> int:
    """Run `shortlist-mcp`: without arguments it serves, as a client that starts an MCP server expects."""
    return main(sys.argv[1:] or ["serve"])


def _run(given: Sequence[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if given[0] == "--version":
        print(_version())
        return 0
    # What follows `--` is a command with options of its own; argparse would mix them with ours.
    cut = given.index("--") if given[0] == "add" and "--" in given else len(given)
    options = _parser(given).parse_args(given[:cut])
    options.following = given[cut + 1 :]

    from shortlist.errors import InvalidInput, ShortlistError, ToolNotFound  # noqa: PLC0415

    try:
        relayed = options.relay(options) if hasattr(options, "relay") else None
        return relayed if relayed is not None else _work(options)
    except ToolNotFound as error:
        return _complain(ToolNotFound(error.tool_id, suggestions=error.suggestions, finder="`shortlist search`"))
    except ShortlistError as error:
        return _complain(error, BAD_INPUT if isinstance(error, InvalidInput) else FAILED)


def _work(options: argparse.Namespace) -> int:
    """Run a command in this process, where no running gateway did it."""
    from shortlist.config.settings import LogSettings  # noqa: PLC0415
    from shortlist.observability.logs import configure_logs  # noqa: PLC0415

    configure_logs(LogSettings())
    return int(options.run(options))


def _complain(error: Exception, status: int = BAD_INPUT) -> int:
    from shortlist.text.tokens import clean_text  # noqa: PLC0415 - errors are rare, and quote what servers say

    print(f"shortlist: {clean_text(str(error))}", file=sys.stderr)
    return status


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shortlist", usage="shortlist COMMAND [ARGUMENT …]")
    command = given[0]
    if command.startswith("-"):
        parser.error(f"put the command first, as in `shortlist search {command}`; `shortlist --help` lists them")
    if command not in COMMANDS:
        parser.error(_unknown(command))
    module, _ = COMMANDS[command]
    subparsers = parser.add_subparsers(metavar="COMMAND", prog="shortlist", required=True)
    import_module(f"shortlist.cli.{module}").register(subparsers)
    return parser


def _overview() -> str:
    lines = [
        "usage: shortlist COMMAND [ARGUMENT …]",
        "",
        "Find, load and call the right MCP tool out of thousands.",
        "`shortlist COMMAND --help` describes a command and its options; `shortlist --version` prints the version.",
    ]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"    {name:<12} {what}" for name, (_, what) in commands.items())]
    return "\n".join(lines)


def _unknown(command: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415

    close = get_close_matches(command, COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
    return f"no command {command!r}; {hint}"


def _version() -> str:
    from shortlist.version import own_version  # noqa: PLC0415

    return f"shortlist {own_version()}"
