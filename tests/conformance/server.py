"""What the official conformance suite expects of a server, in both eras: `python server.py [--port N] [--legacy]`.

The names and answers are the suite's (npm `@modelcontextprotocol/conformance`). It takes a free port, prints it, and
serves /mcp: in both eras, or without the modern one with `--legacy`.
"""

import argparse
import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged

Context: TypeAlias = ServerRequestContext[Any, Any]
Params: TypeAlias = types.CallToolRequestParams
Answer: TypeAlias = types.CallToolResult | types.InputRequiredResult
ToolCall: TypeAlias = Callable[[Context, Params], Awaitable[Answer]]

NAME = "conformance-fixture"
STEP_SECONDS = 0.05
RECONNECT_SECONDS = 0.2
RETRY_MILLISECONDS = 100
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
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
watched: set[str] = set()


def text(value: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=value)], is_error=is_error)


def form(message: str, properties: Mapping[str, Any], required: list[str] | None = None) -> types.ElicitRequest:
    schema = {"type": "object", "properties": dict(properties), **({"required": required} if required else {})}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def question(words: str, most: int) -> types.CreateMessageRequest:
    asked = types.SamplingMessage(role="user", content=types.TextContent(text=words))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=most))


ASK_NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
ASK_COLOUR = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
ASK_CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])
ASK_CONTEXT = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])


# Content


async def simple_text(_: Context, __: Params) -> Answer:
    return text("This is a simple text response for testing.")


async def image_content(_: Context, __: Params) -> Answer:
    return types.CallToolResult(content=[types.ImageContent(data=PNG, mime_type="image/png")])


async def audio_content(_: Context, __: Params) -> Answer:
    return types.CallToolResult(content=[types.AudioContent(data=WAV, mime_type="audio/wav")])


def embedded(uri: str, mime_type: str, content: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=content))


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


# Asking the client: a legacy one while the call is open, a modern one in its next round trip


async def sampling(context: Context, params: Params) -> Answer:
    asked = question(str((params.arguments or {})["prompt"]), 100)
    if not context.session.can_send_request:
        answer = (params.input_responses or {}).get("sampling")
        return input_required({"sampling": asked}) if answer is None else text(f"LLM response: {answer}")
    result = await context.session.create_message(
        messages=asked.params.messages, max_tokens=asked.params.max_tokens, related_request_id=context.request_id
    )
    said = result.content
    return text(f"LLM response: {said.text if isinstance(said, types.TextContent) else said}")


async def elicit(context: Context, params: Params, asked: types.ElicitRequest, opening: str) -> Answer:
    if not context.session.can_send_request:
        answer = (params.input_responses or {}).get("form")
        return input_required({"form": asked}) if answer is None else text(f"{opening}: {answer}")
    form = asked.params
    assert isinstance(form, types.ElicitRequestFormParams)
    result = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
    return text(f"{opening}: action={result.action}, content={json.dumps(result.content or {})}")


async def elicitation(context: Context, params: Params) -> Answer:
    properties = {"response": {"type": "string", "description": "User's response"}}
    asked = form(str((params.arguments or {})["message"]), properties, ["response"])
    return await elicit(context, params, asked, "User response")


async def elicitation_defaults(context: Context, params: Params) -> Answer:
    properties = {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    }
    return await elicit(context, params, form("Please review your data", properties), "Elicitation completed")


async def elicitation_enums(context: Context, params: Params) -> Answer:
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicit(context, params, form("Please select", properties), "Elicitation completed")


# Asking the client in round trips


def input_required(requests: Mapping[str, Any], state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=dict(requests), request_state=state)


def accepted(params: Params | types.GetPromptRequestParams, key: str) -> dict[str, Any] | None:
    """Give what the user filled in, or None where it has to be asked for again."""
    answer = (params.input_responses or {}).get(key)
    if isinstance(answer, types.ElicitResult) and answer.action == "accept":
        return dict(answer.content or {})
    return None


async def ask_name(_: Context, params: Params) -> Answer:
    content = accepted(params, "user_name")
    if content is None or not isinstance(content.get("name"), str):
        return input_required({"user_name": ASK_NAME})
    return text(f"Hello, {content['name']}!")


async def ask_model(_: Context, params: Params) -> Answer:
    answer = (params.input_responses or {}).get("capital_question")
    if answer is None:
        return input_required({"capital_question": question("What is the capital of France?", 100)})
    return text(answer.model_dump_json())


async def ask_roots(_: Context, params: Params) -> Answer:
    answer = (params.input_responses or {}).get("client_roots")
    if answer is None:
        return input_required({"client_roots": types.ListRootsRequest()})
    return text(answer.model_dump_json())


async def ask_with_state(_: Context, params: Params) -> Answer:
    if params.request_state != "confirming" or accepted(params, "confirm") is None:
        return input_required({"confirm": ASK_CONFIRM}, "confirming")
    return text("state-ok")


async def ask_everything(_: Context, params: Params) -> Answer:
    requests = {
        "user_name": ASK_NAME,
        "greeting": question("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    missing = {key: asked for key, asked in requests.items() if key not in (params.input_responses or {})}
    return input_required(missing, "everything") if missing else text("Every question was answered")


async def ask_twice(_: Context, params: Params) -> Answer:
    step = params.request_state
    if step == "round-2" and accepted(params, "step2") is not None:
        return text("Both rounds are complete")
    if step == "round-1" and accepted(params, "step1") is not None:
        return input_required({"step2": ASK_COLOUR}, "round-2")
    return input_required(
        {"step1": form("Step 1: What is your name?", {"name": {"type": "string"}}, ["name"])}, "round-1"
    )


async def ask_what_is_declared(context: Context, params: Params) -> Answer:
    if params.input_responses:
        return text("Answered")
    declared = context.session.client_capabilities
    requests: dict[str, Any] = {}
    if declared is not None and declared.elicitation is not None:
        requests["user_name"] = ASK_NAME
    if declared is not None and declared.sampling is not None:
        requests["greeting"] = question("Generate a greeting", 50)
    return input_required(requests) if requests else text("There is nothing that could be asked")


async def missing_capability(context: Context, _: Params) -> Answer:
    declared = context.session.client_capabilities
    if declared is None or declared.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling", needed)
    return text("The client has sampling")


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
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": elicitation_defaults,
    "test_elicitation_sep1330_enums": elicitation_enums,
    "json_schema_2020_12_tool": schema_2020_12,
    "test_headers": headers,
    "test_input_required_result_elicitation": ask_name,
    "test_streaming_elicitation": ask_name,
    "test_input_required_result_sampling": ask_model,
    "test_input_required_result_list_roots": ask_roots,
    "test_input_required_result_request_state": ask_with_state,
    "test_input_required_result_tampered_state": ask_with_state,
    "test_input_required_result_multiple_inputs": ask_everything,
    "test_input_required_result_multi_round": ask_twice,
    "test_input_required_result_capabilities": ask_what_is_declared,
    "test_missing_capability": missing_capability,
    "test_trigger_tool_change": trigger_tool_change,
    "test_trigger_prompt_change": trigger_prompt_change,
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


# Prompts and resources


def argument(name: str, description: str) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=description, required=True)


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        types.Prompt(name="test_simple_prompt", description="A prompt without arguments"),
        types.Prompt(
            name="test_prompt_with_arguments",
            description="A prompt with required arguments",
            arguments=[argument("arg1", "First test argument"), argument("arg2", "Second test argument")],
        ),
        types.Prompt(
            name="test_prompt_with_embedded_resource",
            description="A prompt that embeds a resource",
            arguments=[argument("resourceUri", "URI of the resource to embed")],
        ),
        types.Prompt(name="test_prompt_with_image", description="A prompt with an image"),
        types.Prompt(name="test_input_required_result_prompt", description="A prompt that asks for its context"),
    )
}


async def list_prompts(_: Context, __: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=list(PROMPTS.values()))


async def get_prompt(
    _: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    if params.name == "test_input_required_result_prompt":
        given = accepted(params, "user_context")
        return input_required({"user_context": ASK_CONTEXT}) if given is None else said(f"Context: {given}")
    return prompt_text(params.name, params.arguments or {})


def prompt_text(name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
    match name:
        case "test_prompt_with_arguments":
            pairs = ", ".join(f"{key}='{arguments.get(key, '')}'" for key in ("arg1", "arg2"))
            return said(f"Prompt with arguments: {pairs}")
        case "test_prompt_with_embedded_resource":
            resource = embedded(arguments["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return said(resource, "Please process the embedded resource above.")
        case "test_prompt_with_image":
            image = types.ImageContent(data=PNG, mime_type="image/png")
            return said(image, "Please analyze the image above.")
        case _ if name in PROMPTS:
            return said("This is a simple prompt for testing.")
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")


def said(*parts: Any) -> types.GetPromptResult:
    blocks = [types.TextContent(text=part) if isinstance(part, str) else part for part in parts]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])


STATIC = {
    "test://static-text": ("Static Text Resource", "text/plain", "This is the content of the static text resource."),
    "test://static-binary": ("Static Binary Resource", "image/png", PNG),
    "test://watched-resource": ("Watched Resource", "text/plain", "Watched resource content"),
}


async def list_resources(_: Context, __: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=uri, name=name, description=f"{name} for testing", mime_type=mime_type)
            for uri, (name, mime_type, _) in STATIC.items()
        ]
    )


async def list_templates(_: Context, __: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="Resource Template",
        description="A resource template with parameter substitution",
        mime_type="application/json",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    content: types.TextResourceContents | types.BlobResourceContents
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        data = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        content = types.TextResourceContents(uri=uri, mime_type="application/json", text=data)
    elif uri in STATIC:
        _name, mime_type, data = STATIC[uri]
        content = (
            types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=data)
            if mime_type == "image/png"
            else types.TextResourceContents(uri=uri, mime_type=mime_type, text=data)
        )
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[content])


async def subscribe(_: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    watched.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(_: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    watched.discard(str(params.uri))
    return types.EmptyResult()


async def complete(_: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [word for word in ("paris", "park", "party", "test") if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def set_level(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


class FixtureServer(Server[Any]):
    """Says over HTTP, too, that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


class Events(EventStore):
    """Every event of every stream, in order; there is one client at a time."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream = self._events[last - 1][0]
        for number, (of, message) in enumerate(self._events[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def build() -> FixtureServer:
    server = FixtureServer(
        NAME,
        version="1.0.0",
        get_tool_input_schema=schema_of,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_completion=complete,
        on_set_logging_level=set_level,
        on_subscriptions_listen=ListenHandler(bus),
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


class LegacyOnly:
    """Answers the modern era's first request like a server that has never heard of it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") != b"server/discover":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"no such method"})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--legacy", action="store_true")
    options = parser.parse_args()
    app: Any = build().streamable_http_app(event_store=Events(), retry_interval=RETRY_MILLISECONDS)
    listener = socket.create_server(("127.0.0.1", options.port))
    print("port", listener.getsockname()[1], flush=True)
    config = uvicorn.Config(LegacyOnly(app) if options.legacy else app, log_level="warning")
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
