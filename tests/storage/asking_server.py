"""A server whose tools ask the client, wait until they are cancelled or a file exists, or return its process id."""

import json
import os
import sys
import threading
import time
from typing import Any

WRITING = threading.Lock()
ANSWERS: dict[Any, Any] = {}
CANCELLED: set[Any] = set()
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "wait", "who")]


def send(message: dict[str, Any]) -> None:
    with WRITING:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def call(request: dict[str, Any]) -> None:
    text = "done"
    if request["params"]["name"] == "ask":
        number = f"question-{request['id']}"
        schema = {"type": "object", "properties": {}}
        send({"id": number, "method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}})
        while number not in ANSWERS:
            time.sleep(0.01)
        text = f"answered {ANSWERS[number]['action']}"
    elif request["params"]["name"] == "who":
        text = str(os.getpid())
    else:
        with open(request["params"]["arguments"]["file"] + ".calls", "a") as calls:
            calls.write("called\n")
        while not os.path.exists(request["params"]["arguments"]["file"]):
            if request["id"] in CANCELLED:
                open(request["params"]["arguments"]["file"] + ".cancelled", "w").close()
                return
            time.sleep(0.01)
    send({"id": request["id"], "result": {"content": [{"type": "text", "text": text}]}})


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method is None:
        ANSWERS[message["id"]] = message.get("result")
    elif method == "notifications/cancelled":
        CANCELLED.add(message["params"]["requestId"])
    elif method == "initialize":
        info = {"name": "asking", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": message["id"], "result": result})
    elif method == "tools/call":
        threading.Thread(target=call, args=(message,), daemon=True).start()
    elif "id" in message:
        send({"id": message["id"], "result": {"tools": TOOLS} if method == "tools/list" else {}})
