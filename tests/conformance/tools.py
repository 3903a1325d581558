"""The tools of the fixture, by the names that the suite calls."""

import asyncio
import json
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged

from tests.conformance.answers import PNG, WAV, Answer, Context, Params, ToolCall, embedded, text
from tests.conformance.asking import ASKING
from tests.conformance.prompts import PROMPTS

NAME = "conformance-fixture"
STEP_SECONDS = 0.05
RECONNECT_SECONDS = 0.2
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

bus = InMemorySubscriptionBus()


async def simple_text(_: Context, __: Params) -> Answer:
    return text("This is a simple text response for testing.")


async def image_content(_: Context, __: Params) -> Answer:
    return types.CallToolResult(content=[types.ImageContent(data=PNG, mime_type="image/png")])


async def audio_content(_: Context, __: Params) -> Answer:
    return types.CallToolResult(content=[types.AudioContent(data=WAV, mime_type="audio/wav")])


async def embedded_resource(_: Context, __: Params) -> Answer:
    resource = embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    return types.CallToolResult(content=[resource])


async def multiple_content_types(_: Context, __: Params) -> Answer:
    return types.CallToolResult(
        content=[
            types.TextContent(text="Multiple content types test:"),
            types.ImageContent(data=PNG, mime_type="image/png"),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    )


async def error_handling(_: Context, __: Params) -> Answer:
    return text("This tool intentionally returns an error for testing", is_error=True)


async def schema_2020_12(_: Context, params: Params) -> Answer:
    return text(json.dumps(params.arguments or {}))


async def headers(_: Context, params: Params) -> Answer:
    return text(json.dumps(params.arguments or {}))


# While it runs


async def log(context: Context, words: str) -> None:
    await context.session.send_log_message(level="info", data=words, logger=NAME, related_request_id=context.request_id)


async def tool_with_logging(context: Context, _: Params) -> Answer:
    await log(context, "Tool execution started")
    await asyncio.sleep(STEP_SECONDS)
    await log(context, "Tool processing data")
    await asyncio.sleep(STEP_SECONDS)
    await log(context, "Tool execution completed")
    return text("Tool with logging executed successfully")


async def tool_with_progress(context: Context, _: Params) -> Answer:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(STEP_SECONDS)
    return text("Tool with progress executed successfully")


async def reconnection(context: Context, _: Params) -> Answer:
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await asyncio.sleep(RECONNECT_SECONDS)
    return text("Reconnection test completed")


async def trigger_tool_change(_: Context, __: Params) -> Answer:
    extra = "test_added_while_running"
    if TOOLS.pop(extra, None) is None:
        TOOLS[extra] = simple_text
    await bus.publish(ToolsListChanged())
    return text("The list of tools has changed")


async def trigger_prompt_change(_: Context, __: Params) -> Answer:
    extra = "test_added_while_running"
    if PROMPTS.pop(extra, None) is None:
        PROMPTS[extra] = types.Prompt(name=extra, description="Came later")
    await bus.publish(PromptsListChanged())
    return text("The list of prompts has changed")


TOOLS: dict[str, ToolCall] = {
    "test_simple_text": simple_text,
    "test_image_content": image_content,
    "test_audio_content": audio_content,
    "test_embedded_resource": embedded_resource,
    "test_multiple_content_types": multiple_content_types,
    "test_tool_with_logging": tool_with_logging,
    "test_logging_tool": tool_with_logging,
    "test_tool_with_progress": tool_with_progress,
    "test_error_handling": error_handling,
    "test_reconnection": reconnection,
    "json_schema_2020_12_tool": schema_2020_12,
    "test_headers": headers,
    "test_trigger_tool_change": trigger_tool_change,
    "test_trigger_prompt_change": trigger_prompt_change,
    **ASKING,
}


def with_text(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string", **more}}, "required": [name]}


SCHEMAS: dict[str, dict[str, Any]] = {
    "test_sampling": with_text("prompt"),
    "test_elicitation": with_text("message"),
    "test_headers": with_text("region", **{"x-mcp-header": "Region"}),
    "json_schema_2020_12_tool": SCHEMA_2020_12,
}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def schema_of(name: str) -> dict[str, Any] | None:
    return SCHEMAS.get(name, NO_ARGUMENTS) if name in TOOLS else None


async def list_tools(_: Context, __: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=name.replace("_", " "), input_schema=SCHEMAS.get(name, NO_ARGUMENTS))
            for name in TOOLS
        ]
    )


async def call_tool(context: Context, params: Params) -> Answer:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await TOOLS[params.name](context, params)
