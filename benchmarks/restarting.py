"""The process that `benchmarks.restart` times; like the command it stands for, it has imported nothing before."""

import gc
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

SWITCH_SECONDS = 0.001
ASKED = "send a message to the team"


def restarted() -> None:
    """Start again, in a process of its own, and print when each step was reached."""
    reached: dict[str, Any] = {}
    wall, cpu = time.perf_counter(), time.process_time()

    def reach(step: str) -> None:
        reached[step] = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}

    import mcp  # noqa: F401

    reach("import mcp")
    from shortlist.cli import YOUNG_OBJECTS

    gc.set_threshold(*YOUNG_OBJECTS)
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)  # all three as the command does
    from benchmarks.asking import Asking

    from shortlist.cli.stack import open_stack, run_plainly
    from shortlist.gateway.callers import Round
    from shortlist.gateway.view import ServeOptions
    from shortlist.paths import cache_folder

    reach("import shortlist")
    settings = settings_of(json.loads((cache_folder() / "servers.json").read_text()))

    async def first_search() -> int:
        async with open_stack(settings, ServeOptions(mode="search"), start="none") as stack:
            reach("ready for requests")
            answer = await stack.gateway.call(Asking("bench"), "search_tools", {"query": ASKED}, Round())
            reach("first search answered")
            text = str(answer)
            assert "words alone" not in text, text
            assert "static model" not in text, text
            return len(stack.gateway.state.everything.catalog)

    tools = run_plainly(first_search)
    print(json.dumps({"reached": reached, "tools": tools, "servers": len(settings.servers)}))


def settings_of(names: Iterable[str]) -> Any:
    from shortlist.config.settings import SearchSettings, ServerSettings, Settings, StdioTransport

    servers = {name: ServerSettings(name=name, transport=StdioTransport(command="true")) for name in names}
    return Settings(servers=servers, search=SearchSettings(embedder="small"))
