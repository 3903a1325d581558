"""Tools that ask the client: a legacy one while the call is open, a modern one in its next round trip."""

import json
from typing import Any

import mcp_types as types
from mcp import MCPError

from tests.conformance.answers import Answer, Context, Params, ToolCall, accepted, form, input_required, question, text

ASK_NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
ASK_COLOUR = form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
ASK_CONFIRM = form("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])


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


# In round trips alone


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


ASKING: dict[str, ToolCall] = {
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": elicitation_defaults,
    "test_elicitation_sep1330_enums": elicitation_enums,
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
}
