"""The resources of the fixture: some that are listed, and a template."""

import json
from typing import Any

import mcp_types as types
from mcp import MCPError

from tests.conformance.answers import PNG, Context

watched: set[str] = set()
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
