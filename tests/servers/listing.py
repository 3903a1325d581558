"""A legacy MCP server that answers every list with what a JSON file says: `python listing.py FILE`.

What the file says about `initialize` is added to how the server introduces itself.
"""

import json
import sys
from pathlib import Path

LISTS = json.loads(Path(sys.argv[1]).read_text())
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    "serverInfo": {"name": "listing", "version": "1"},
    **LISTS.get("initialize", {}),
}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = HELLO if request["method"] == "initialize" else LISTS.get(request["method"])
        unknown = {"error": {"code": -32601, "message": "Method not found"}}
        answer = {"jsonrpc": "2.0", "id": request["id"], **(unknown if result is None else {"result": result})}
        print(json.dumps(answer), flush=True)
