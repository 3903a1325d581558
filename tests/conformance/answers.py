"""What the fixture's answers and questions are made of."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext

Context: TypeAlias = ServerRequestContext[Any, Any]
Params: TypeAlias = types.CallToolRequestParams
Answer: TypeAlias = types.CallToolResult | types.InputRequiredResult
ToolCall: TypeAlias = Callable[[Context, Params], Awaitable[Answer]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="


def text(value: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=value)], is_error=is_error)


def form(message: str, properties: Mapping[str, Any], required: list[str] | None = None) -> types.ElicitRequest:
    schema = {"type": "object", "properties": dict(properties), **({"required": required} if required else {})}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def question(words: str, most: int) -> types.CreateMessageRequest:
    asked = types.SamplingMessage(role="user", content=types.TextContent(text=words))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=most))


def embedded(uri: str, mime_type: str, content: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=content))


def input_required(requests: Mapping[str, Any], state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=dict(requests), request_state=state)


def accepted(params: Params | types.GetPromptRequestParams, key: str) -> dict[str, Any] | None:
    """Return what the user filled in, or None where it has to be asked for again."""
    answer = (params.input_responses or {}).get(key)
    if isinstance(answer, types.ElicitResult) and answer.action == "accept":
        return dict(answer.content or {})
    return None
