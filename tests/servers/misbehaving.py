"""A legacy MCP server of few lines and many faults: `python misbehaving.py FAULT [ARGUMENT]`.

It needs nothing but the standard library, so that it starts in milliseconds.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"
ARGUMENT = sys.argv[2] if len(sys.argv) > 2 else ""
OBJECT = {"type": "object", "properties": {}}
state: dict[str, Any] = {"description": "before", "lists": 0, "calls": 0, "pings": 0, "cancelled": [], "watched": []}
output = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with output:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def answer(request: dict[str, Any], result: Any) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def refuse(request: dict[str, Any], code: int, message: str, data: Any = None) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message, "data": data}})


def notify(method: str, params: dict[str, Any] | None = None) -> None:
    send({"jsonrpc": "2.0", "method": method, "params": params or {}})


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}", "inputSchema": OBJECT, **more}


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


def deep_tools() -> list[Any]:
    schema = {**OBJECT, "properties": {"a": {"enum": nested(int(ARGUMENT))}}}
    bad = [tool("schema", inputSchema=schema), tool("icons", icons=nested(300)), tool("extra", unknown=nested(300))]
    return [tool("echo"), *bad, nested(300), tool("shallow", _meta={"a": nested(150)}), tool("huge")]


def tools() -> list[Any]:
    match FAULT:
        case "empty-schema":
            return [tool("good"), tool("bad", inputSchema={}), {"description": "nameless"}, "not an object"]
        case "same-name-twice":
            return [tool("twin", title="first"), tool("twin", title="second"), tool("other")]
        case "late" | "deep":
            return deep_tools() if FAULT == "deep" else [tool("late")]
        case "changing":
            return [tool("shifty", description=state["description"])]
        case "violates-output-schema":
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            return [tool("liar", outputSchema=schema)]
        case _:
            return [tool(name) for name in ("echo", "hang", "die", "huge", "refuse", "slow", "ask", "env", "seen")]


def list_tools(request: dict[str, Any]) -> None:
    state["lists"] += 1
    if FAULT == "hang-on-list":
        return
    if FAULT == "many":
        total, page = int(ARGUMENT), 1000
        start = int(request.get("params", {}).get("cursor", "0"))
        listed = [tool(f"tool_{i:05}") for i in range(start, min(start + page, total))]
        more = {"nextCursor": str(start + page)} if start + page < total else {}
        answer(request, {"tools": listed, **more})
    elif FAULT == "endless-cursor":
        answer(request, {"tools": [tool("only")], "nextCursor": "again"})
    elif FAULT == "long-cursors":
        answer(request, {"tools": [tool(f"tool_{state['lists']}")], "nextCursor": f"{state['lists']}" + "x" * 10_000})
    else:
        answer(request, {"tools": tools()})


def stay_deaf() -> None:
    while FAULT == "deaf" and not os.path.exists(ARGUMENT):
        time.sleep(0.01)


def storm() -> None:
    for number in range(int(ARGUMENT) if FAULT == "storm" else 0):
        notify("notifications/message", {"level": "info", "data": number})


def answer_late(request: dict[str, Any]) -> None:
    """Answer when a file appears; another file tells how many calls wait for it."""
    open(f"{ARGUMENT}.{state['calls']}", "w").close()
    while not os.path.exists(ARGUMENT):
        time.sleep(0.01)
    answer(request, text("at last"))


def fail(request: dict[str, Any], how: str) -> None:
    if how == "deafen":
        os.close(0)
        answer(request, text("deaf"))
        time.sleep(3600)
    sys.stderr.write("dying on request\n")
    sys.stderr.flush()
    os._exit(3)


def call_tool(request: dict[str, Any]) -> None:
    state["calls"] += 1
    storm()
    params = request["params"]
    name, arguments = params["name"], params.get("arguments", {})
    match name:
        case "hang":
            stay_deaf()
        case "die" | "deafen":
            fail(request, name)
        case "huge":
            answer(request, {**text("x" * int(arguments["bytes"])), "deep": nested(300 if FAULT == "deep" else 0)})
        case "refuse":
            refuse(request, -32050, "no such luck", {"why": "because"})
        case "liar":
            answer(request, {**text("wrong"), "structuredContent": {"n": "not a number"}, "surprise": [1, None]})
        case "slow":
            token = params["_meta"]["progressToken"]
            notify("notifications/progress", {"progressToken": token, "progress": 1, "total": 2, "message": "half"})
            answer(request, text("done"))
        case "ask":
            state["waiting"] = request
            send({"jsonrpc": "2.0", "id": "ask-1", "method": "elicitation/create", "params": {"message": "sure?"}})
        case "env" | "seen":
            told = dict(os.environ) if name == "env" else {k: v for k, v in state.items() if k != "waiting"}
            answer(request, text(json.dumps(told)))
        case "shifty":
            state["description"] = "after"
            notify("notifications/tools/list_changed")
            state["waiting"] = request
        case _:
            answer(request, {**text(json.dumps(arguments)), "_meta": {"kept": True}})


def initialize(request: dict[str, Any]) -> None:
    state["client"] = request["params"].get("capabilities")
    changes = {} if FAULT == "silent-changes" else {"listChanged": True}
    answer(
        request,
        {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": changes},
            "serverInfo": {"name": "misbehaving", "version": "1"},
            "instructions": "Handle with care.",
        },
    )


def discover(request: dict[str, Any]) -> None:
    if FAULT == "dies-on-probe":
        os._exit(1)
    if FAULT != "ignores-probe":
        refuse(request, -32601, "Method not found")


def changed(request: dict[str, Any]) -> None:
    """End the call of `shifty` once its changed definition was read."""
    list_tools(request)
    if FAULT == "changing" and "waiting" in state and state["lists"] > 1:
        answer(state.pop("waiting"), text("survived"))


def call(request: dict[str, Any]) -> None:
    if FAULT == "late":
        state["calls"] += 1
        threading.Thread(target=answer_late, args=(request,), daemon=True).start()
    else:
        call_tool(request)


def ping(request: dict[str, Any]) -> None:
    state["pings"] += 1
    if FAULT != "no-pong":
        answer(request, {})


def watch(request: dict[str, Any]) -> None:
    uri = request["params"]["uri"]
    if request["method"] == "resources/subscribe":
        state["watched"].append(uri)
    else:
        state["watched"].remove(uri)
    answer(request, {})


METHODS: dict[str, Callable[[dict[str, Any]], None]] = {
    "initialize": initialize,
    "server/discover": discover,
    "tools/list": changed,
    "tools/call": call,
    "ping": ping,
    "resources/subscribe": watch,
    "resources/unsubscribe": watch,
}


def handle(message: dict[str, Any]) -> None:
    if message.get("id") == "ask-1" and "method" not in message:
        answer(state.pop("waiting"), text(json.dumps(message.get("result", message.get("error")))))
    elif message.get("method") == "notifications/cancelled":
        state["cancelled"].append(message["params"]["requestId"])
    elif "id" in message and message.get("method") in METHODS:
        METHODS[message["method"]](message)
    elif "id" in message:
        refuse(message, -32601, "Method not found")


def begin() -> None:
    match FAULT:
        case "hang-on-start" | "ignores-signals":
            if FAULT == "ignores-signals":
                import signal

                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        case "fail-to-start":
            sys.stderr.write("Traceback: the key is missing\nset KEY first\n")
            sys.exit(7)
        case "garbage":
            sys.stdout.write("Welcome!\n\x00\xff{not json\n" + "z" * 100_000 + "\n[1,2]\n{}\n")
            sys.stdout.flush()
        case "daemon":
            detached = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); "
            started = subprocess.run(
                [sys.executable, "-c", f"{detached}os.close(1); time.sleep(3600)"], stdout=subprocess.PIPE, check=False
            )
            sys.stderr.write(f"daemon {int(started.stdout)}\n")
            sys.stderr.flush()
        case "grandchild":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            sys.stderr.write(f"grandchild {child.pid}\n")
            sys.stderr.flush()


def main() -> None:
    begin()
    for line in sys.stdin:
        handle(json.loads(line))


if __name__ == "__main__":
    main()
