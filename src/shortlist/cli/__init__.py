"""The command line: the only prints, the only place where parts are put together."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module

COMMANDS: Mapping[str, str] = {
    "serve": "serving",
    "status": "serving",
    "tools": "serving",
    "call": "serving",
    "toolsets": "serving",
    "logs": "serving",
    "dashboard": "dashboard",
    "import": "importing",
    "search": "searching",
    "explain": "searching",
    "demo": "searching",
    "embed-info": "searching",
    "eval": "evals",
    "rank": "evals",
    "compare": "evals",
    "ablate": "evals",
    "sweep": "evals",
    "doctor": "evals",
    "replay": "harness",
    "run-tasks": "harness",
    "ab": "experiments",
    "learned": "learning",
    "mine": "learning",
    "stats": "telemetry",
    "events": "telemetry",
}
"""Each command and the module that has it: only that one is imported, so that starting stays cheap."""

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 1 says that it failed, 2 that the input has to change."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except BrokenPipeError:
        sys.stderr.close()
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(given: Sequence[str]) -> int:
    # Nothing of ours is imported above: most of a start is imports, and an interrupt there deserves no traceback.
    from shortlist.config.settings import LogSettings  # noqa: PLC0415
    from shortlist.errors import InvalidInput, ShortlistError, ToolNotFound  # noqa: PLC0415
    from shortlist.observability.logs import configure_logs  # noqa: PLC0415

    options = _parser(given).parse_args(given or ["--help"])
    configure_logs(LogSettings())
    try:
        return int(options.run(options))
    except ToolNotFound as error:
        return _complain(ToolNotFound(error.tool_id, suggestions=error.suggestions, finder="`shortlist search`"))
    except ShortlistError as error:
        return _complain(error, BAD_INPUT if isinstance(error, InvalidInput) else FAILED)


def _complain(error: Exception, status: int = BAD_INPUT) -> int:
    print(f"shortlist: {error}", file=sys.stderr)
    return status


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shortlist", description="Find the right tool out of thousands.")
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    wanted = next((word for word in given if not word.startswith("-")), None)
    if wanted and wanted not in COMMANDS:
        parser.error(_unknown(wanted))
    modules = [COMMANDS[wanted]] if wanted else list(dict.fromkeys(COMMANDS.values()))
    for module in modules:
        import_module(f"shortlist.cli.{module}").register(subparsers)
    return parser


def _unknown(command: str) -> str:
    close = get_close_matches(command, COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
    return f"no command {command!r}; {hint}"


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415

    return f"shortlist {version('shortlist-mcp')}"
