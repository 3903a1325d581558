"""Small stand-ins for the core: tools in a line, an embedder without a model, strategies over them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import tool_from_mcp
from shortlist.errors import ShortlistError
from shortlist.index.embedders import Progress, Vectors
from shortlist.models import Query, SearchMode, SearchResult, Server, Tool, ToolId
from shortlist.search.searcher import DEFAULTS, Searcher, SearchOptions
from shortlist.text.tokens import terms

DIMENSIONS = 32


class HashingEmbedder:
    """Hashes each word into one signed dimension: texts that share words are near, and nothing is learned."""

    dimensions = DIMENSIONS

    def __init__(self, model_id: str = "hashing@1", failure: ShortlistError | None = None) -> None:
        self.model_id = model_id
        self.failure = failure
        self.embedded: list[str] = []

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        if self.failure:
            raise self.failure
        self.embedded.extend(texts)
        if progress:
            progress(len(texts), len(texts))
        return np.stack([_hashed(text) for text in texts]) if texts else np.zeros((0, DIMENSIONS), np.float32)

    def embed_query(self, text: str) -> Vectors:
        if self.failure:
            raise self.failure
        return _hashed(text)


def _hashed(text: str) -> Vectors:
    vector = np.zeros(DIMENSIONS, np.float32)
    for term in terms(text[:4_000]):
        digest = hashlib.blake2b(term.encode(), digest_size=2).digest()
        vector[digest[0] % DIMENSIONS] += 1 if digest[1] % 2 else -1
    norm = float(np.linalg.norm(vector))
    return vector / np.float32(norm) if norm else vector


def tool(tool_id: ToolId, description: Any = "", **more: Any) -> Tool:
    """Make a tool of `server/name` and whatever else its MCP definition should hold."""
    server, _, name = tool_id.rpartition("/")
    return tool_from_mcp({"name": name, "description": description, "inputSchema": {"type": "object"}, **more}, server)


def catalog(descriptions: Mapping[ToolId, str] | Iterable[Tool], *servers: Server) -> Catalog:
    if isinstance(descriptions, Mapping):
        return Catalog.of([tool(i, text) for i, text in descriptions.items()], servers)
    return Catalog.of(descriptions, servers)


def searcher(
    source: Mapping[ToolId, str] | Iterable[Tool] | Catalog, *, dense: bool = True, options: SearchOptions = DEFAULTS
) -> Searcher:
    """Make a searcher that is ready."""
    whole = source if isinstance(source, Catalog) else catalog(source)
    ready = Searcher(whole, HashingEmbedder() if dense else None, options=options)
    ready.prepare()
    return ready


def ids(result: SearchResult) -> list[ToolId]:
    return [hit.tool.id for hit in result.hits]


def found(source: Searcher, text: str, **more: Any) -> list[ToolId]:
    """Return the ids that a query finds, best first."""
    return ids(source.search(Query(text=text, **more)))


WORKPLACE: Mapping[ToolId, str] = {
    "calendar/create_event": "Create a calendar event with attendees and a time.",
    "calendar/list_events": "List the events of a calendar between two dates.",
    "calendar/delete_event": "Delete an event from the calendar.",
    "github/create_pull_request": "Open a pull request from one branch into another.",
    "github/merge_pull_request": "Merge a pull request once its checks pass.",
    "github/create_issue": "Create an issue in a repository.",
    "github/list_commits": "List the commits of a branch, newest first.",
    "kubernetes/list_pods": "List the pods of a Kubernetes namespace with their status.",
    "kubernetes/scale_deployment": "Change how many replicas a deployment runs.",
    "kubernetes/get_logs": "Read the logs of a container.",
    "slack/send_message": "Send a message to a channel or a person.",
    "slack/list_channels": "List the channels of the workspace.",
    "weather/get_forecast": "Get the weather forecast for a city over the next days.",
    "postgres/run_query": "Run a SQL query against the database and return its rows.",
    "http/getHTTPResponseV2": "Fetch an address over HTTP and return status, headers and body.",
    "files/read_file": "Read a file from disk.",
    "files/search_files": "Search files by name or content below a folder.",
    "mail/send_email": "Send an email with a subject, a body and attachments.",
}
"""A catalog small enough to know by heart."""

TWINS = {
    **dict.fromkeys(
        ("github/create_issue", "gitlab/create_issue", "jira/create_issue"), "Create an issue with a title."
    ),
    "github/list_branches": "List the branches of a repository.",
    "mail/send_email": "Send an email.",
}
"""Three tools that words cannot tell apart, and two others."""

MODES: tuple[SearchMode, ...] = ("hybrid", "lexical", "dense", "fuzzy", "prefix", "exact")
"""Every mode that takes any text; a regex has to be one."""


_WORDS = """create list get delete update send read search event calendar issue branch message channel file pod log
deploy database row forecast city email invoice customer user token 日程 календарь"""
words = st.sampled_from(_WORDS.split())
sentences = st.lists(words, max_size=8).map(" ".join)
servers = st.sampled_from(["alpha", "beta", "gamma"])


@st.composite
def tools(draw: st.DrawFn) -> Tool:
    """Tools whose ids and words collide often, so that changes and ties happen."""
    name = "_".join(draw(st.lists(words.filter(str.isascii), min_size=1, max_size=2)))
    sentence = draw(sentences)
    shared = draw(st.sampled_from(["", "Needs a token. ", "Part of the suite.\n"]))
    parameter = draw(words)
    return tool(
        f"{draw(servers)}/{name}",
        f"{shared}{sentence}.",
        inputSchema={"type": "object", "properties": {parameter: {"type": "string", "description": sentence}}},
        annotations={"readOnlyHint": draw(st.booleans())},
    )


catalogs = st.lists(tools(), max_size=12).map(Catalog.of)
