"""The prompts of the fixture, and what completes their arguments."""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp import MCPError

from tests.conformance.answers import PNG, Context, accepted, embedded, form, input_required

ASK_CONTEXT = form("What context should the prompt use?", {"context": {"type": "string"}}, ["context"])


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


async def complete(_: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [word for word in ("paris", "park", "party", "test") if word.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))
