"""What the fuzzers send: JSON, JSON-RPC messages, schemas, tools, configurations, and bytes around them."""

from typing import Any

from hypothesis import strategies as st

LONG = 10**30
METHODS = (
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "prompts/get",
    "resources/read",
    "resources/subscribe",
    "completion/complete",
    "logging/setLevel",
    "server/discover",
    "subscriptions/listen",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/message",
    "notifications/tools/list_changed",
    "sampling/createMessage",
    "roots/list",
    "elicitation/create",
)
TEXTS = st.text(max_size=20) | st.sampled_from(["", "\0", "\ud800", "a" * 500, "../../etc", "__proto__", "é\u202e"])
NUMBERS = st.integers(-LONG, LONG) | st.floats() | st.sampled_from([0, -1, 2**53, 2**64])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
IDS: st.SearchStrategy[Any] = st.integers(0, 6) | st.sampled_from(
    ["1", "2", "listen-1", True, None, -1, 10**20, "9" * 5_000, 1.0, [1], {}]
)

PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS | st.sampled_from(["call_tool", "search_tools", "read_result", "describe_tools"]),
        "arguments": JSON,
        "_meta": JSON,
        "progressToken": IDS,
        "progress": NUMBERS | TEXTS,
        "total": NUMBERS | TEXTS,
        "message": JSON,
        "requestId": IDS,
        "uri": TEXTS,
        "level": TEXTS | st.sampled_from(["info", "debug"]),
        "data": JSON,
        "cursor": JSON,
        "protocolVersion": st.sampled_from(["2025-06-18", "2026-07-28", "1", ""]) | JSON,
        "capabilities": JSON,
        "clientInfo": JSON,
        "inputResponses": JSON,
        "requestState": JSON,
    },
)
MESSAGES: st.SearchStrategy[Any] = (
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "1.0", 2]) | JSON,
            "id": IDS,
            "method": st.sampled_from(METHODS) | JSON,
            "params": PARAMS | JSON,
            "result": JSON,
            "error": st.fixed_dictionaries({}, optional={"code": JSON, "message": JSON, "data": JSON}) | JSON,
        },
    )
    | JSON
)

KEYWORDS = (
    "type", "properties", "items", "prefixItems", "required", "enum", "const", "pattern", "patternProperties",
    "additionalProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "$ref", "$defs", "$dynamicRef",
    "uniqueItems", "minimum", "maxLength", "multipleOf", "dependentSchemas", "propertyNames", "unevaluatedProperties",
    "contains", "format", "$schema", "$id", "minItems",
)  # fmt: skip
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.sampled_from(["object", "string", "#", "#/$defs/a", "^(a+)+$", "(?=x)", "http://x/y", [["a"]]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=14,
)
TOOLS: st.SearchStrategy[Any] = (
    st.fixed_dictionaries(
        {},
        optional={
            "name": TEXTS,
            "title": JSON,
            "description": JSON,
            "inputSchema": SCHEMAS | st.just({"type": "object"}),
            "outputSchema": SCHEMAS,
            "annotations": JSON,
            "_meta": JSON,
            "icons": JSON,
        },
    )
    | JSON
)
SERVERS = st.fixed_dictionaries(
    {},
    optional={
        "command": TEXTS,
        "args": st.lists(TEXTS, max_size=3) | JSON,
        "env": JSON,
        "url": TEXTS | st.sampled_from(["http://127.0.0.1:1/mcp", "http://[::1", "https://${X}/"]),
        "type": TEXTS | st.sampled_from(["stdio", "http", "sse"]),
        "headers": JSON,
        "shortlist": JSON,
        "disabled": JSON,
        "cwd": JSON,
    },
)
CONFIGURATIONS: st.SearchStrategy[Any] = (
    st.fixed_dictionaries(
        {},
        optional={
            "mcpServers": st.dictionaries(TEXTS, SERVERS | JSON, max_size=3) | JSON,
            "servers": JSON,
            "shortlist": st.fixed_dictionaries(
                {},
                optional={
                    "mode": TEXTS,
                    "limits": JSON,
                    "tokens": JSON,
                    "toolsets": JSON,
                    "presets": JSON,
                    "telemetry": JSON,
                    "logs": JSON,
                },
            )
            | JSON,
        },
    )
    | JSON
)
RESULTS: st.SearchStrategy[Any] = (
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.lists(
                st.fixed_dictionaries({}, optional={"type": st.just("text") | JSON, "text": TEXTS | JSON}) | JSON,
                max_size=4,
            )
            | JSON,
            "structuredContent": JSON,
            "isError": JSON,
            "_meta": JSON,
            "resultType": JSON,
        },
    )
    | JSON
)
