"""What a configuration says, as frozen values; nothing here reads a file."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from shortlist.models import Asker

Mode: TypeAlias = Literal["search", "dynamic", "static", "passthrough", "auto"]
Effect: TypeAlias = Literal["read_only", "write", "destructive"]
Trust: TypeAlias = Literal["review", "scan", "auto"]
"""How a server's new and changed definitions are treated: see docs/trust.md."""
ResultsPolicy: TypeAlias = Literal["pass", "mark", "block"]
"""What happens to results of calls that hold secrets or instructions to the model: see docs/trust.md."""
Isolation: TypeAlias = Literal["none", "sandbox", "container"]
"""How a local server is kept apart from the rest of the machine: see docs/isolation.md."""
Start: TypeAlias = Literal["on_demand", "always"]
"""Whether a server runs only while it is used, or as long as the gateway."""
LoginScope: TypeAlias = Literal["shared", "per_principal"]
"""Whose login a server is used with."""
SessionScope: TypeAlias = Literal["auto", "shared", "per_principal", "per_workspace"]
"""Who shares a connection to a server. `auto`: everybody, until it was told the roots of one client."""
Question: TypeAlias = Literal["sampling", "elicitation", "roots"]
"""What a server may ask of the client that calls it."""
Confirm: TypeAlias = Literal["never", "write", "destructive"]
"""Before which calls the person is asked. A tool without a configured effect counts as destructive."""
Provider: TypeAlias = Literal["gemini", "openai", "anthropic"]
Action: TypeAlias = Literal["see", "read", "call", "resources", "prompts", "be_asked", "admin"]
"""What a caller may do. `see` finds and describes tools, `read` also calls those that are configured as read-only,
`call` calls any. `be_asked` lets servers ask the caller's client; `admin` uses the actions of the dashboard."""
Allow: TypeAlias = Literal["read", "write"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Keeping: TypeAlias = Literal["keep", "hash", "omit"]
"""What becomes of a text that is recorded; secrets in it are masked in any case."""

EMPTY: Mapping[str, Any] = MappingProxyType({})
CALL_SECONDS = 60.0
CONCURRENT_CALLS = 16
START_SECONDS = 60.0
"""A first start may download its package (npx, uvx)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationSettings:
    """What a local server may reach and use; limits apply where `kind` is not `none`."""

    kind: Isolation = "none"
    server: str = ""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False
    image: str = ""
    memory_megabytes: int = 2048
    home_megabytes: int | None = None
    processes: int = 128
    open_files: int = 1024
    cpu_seconds: int | None = None


NOT_ISOLATED = IsolationSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioTransport:
    """A child process that speaks MCP on its stdin and stdout; `environment` is all that it gets."""

    command: str
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    directory: str | None = None
    isolation: IsolationSettings = field(default=NOT_ISOLATED, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClientSettings:
    """How this gateway presents itself to one server's authorization server."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    client_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()
    allow_private_addresses: bool = False


NO_OAUTH = OAuthClientSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTransport:
    """Streamable HTTP; with `sse_fallback` an endpoint that refuses it is tried as legacy SSE."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClientSettings = NO_OAUTH
    sse_fallback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SseTransport:
    """The HTTP+SSE transport of protocol 2024-11-05."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClientSettings = NO_OAUTH


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTransport:
    """A low-level MCP server inside this process (the demo); never written in a configuration."""

    build: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTransport:
    """A server that cannot be reached as it is configured: a variable that its entry names has no value."""

    reason: str


Transport: TypeAlias = StdioTransport | HttpTransport | SseTransport | MemoryTransport | NoTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """What the user says about one tool of a server; None keeps what the server says."""

    description: str | None = None
    keywords: tuple[str, ...] = ()
    effect: Effect | None = None
    """The only statement of effect that access decisions trust; annotations of the server are hints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One upstream: how to reach it, and how its tools are shown and called."""

    name: str
    transport: Transport
    title: str = ""
    description: str = ""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    always_load: tuple[str, ...] = ()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    timeout_seconds: float = CALL_SECONDS
    start_seconds: float = START_SECONDS
    max_concurrency: int = CONCURRENT_CALLS
    identity: LoginScope = "shared"
    sessions: SessionScope = "auto"
    confirm: Confirm = "never"
    may_ask: tuple[Question, ...] = ("sampling", "elicitation", "roots")
    trust: Trust = "scan"
    results: ResultsPolicy = "pass"
    same_as: str = ""
    """The server whose tools these are equal to; search shows such tools once."""
    start: Start = "on_demand"
    tools: Mapping[str, ToolOverride] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetSettings:
    """A named set of tools; a tool belongs when every condition that is given holds."""

    name: str
    description: str = ""
    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Globs over tool ids (`server/name`)."""
    tags: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    used_with: tuple[str, ...] = ()
    """Tool ids; tools that were called together with them, from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetSettings:
    """What is bound from the start: whole toolsets and single tools."""

    name: str
    toolsets: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """A caller's name, the hash of its bearer token, and what it may reach and do; None means everything."""

    name: str
    hash: str = field(repr=False)
    servers: tuple[str, ...] | None = None
    toolsets: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    """Globs over tool ids (`server/name`)."""
    can: tuple[Action, ...] | None = None
    group: str | None = None
    """Callers of one group learn from each other's use; None learns from its own alone."""
    confirm: Confirm = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRule:
    """What the holders of some access tokens may reach and do; None means everything."""

    claim: str | None = None
    """The claim to look at, also as a path such as `realm_access.roles`; None matches every token."""
    values: tuple[str, ...] = ()
    """One of these must be in the claim."""
    email_domains: tuple[str, ...] = ()
    """The verified e-mail address must be in one of these domains."""
    servers: tuple[str, ...] | None = None
    toolsets: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    can: tuple[Action, ...] | None = None
    group: str | None = None
    confirm: Confirm = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Introspection:
    """Where an issuer answers questions about opaque tokens (RFC 7662), and how this gateway signs in there."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """An authorization server whose access tokens are accepted, and what they allow."""

    name: str
    issuer: str
    audiences: tuple[str, ...]
    rules: tuple[ClaimRule, ...]
    """The first rule that matches decides; a token that none matches is refused."""
    jwks_uri: str | None = None
    """None: the issuer's metadata names it."""
    introspection: Introspection | None = None
    scopes: tuple[tuple[str, tuple[Action, ...]], ...] = ()
    """The actions that each OAuth scope allows; empty: the scopes of a token do not matter."""
    allow_private_addresses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """This gateway as an OAuth 2.1 resource server."""

    resource: str = ""
    """The URL under which clients reach `/mcp`."""
    issuers: Mapping[str, IssuerSettings] = field(default_factory=dict)


NO_ISSUERS = OAuthSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that keep one caller or one server from taking the gateway down."""

    message_bytes: int = 32 * 1024 * 1024
    """One message of an upstream, or of a client over stdio; a larger one is dropped while it comes; its call fails."""
    tools_per_server: int = 20_000
    gone_definitions_bytes: int = 32 * 1024 * 1024
    """What is remembered of tools that one server no longer lists; beyond it, further new tools of it are held."""
    breaker_failures: int = 5
    """Connection errors or timeouts in a row after which calls to a server fail at once until it answers again."""
    notifications_per_second: float = 50.0
    """What one server may send clients in log messages and other notifications; the rest is dropped and counted."""
    result_characters: int = 20_000
    """Text results above this are paged."""
    result_seconds: float = 900.0
    """How long a paged result is kept."""
    results: int = 200
    results_bytes: int = 64 * 1024 * 1024
    """What all kept results may take in memory; the oldest go first."""
    results_per_caller: int = 50
    results_bytes_per_caller: int = 16 * 1024 * 1024
    """What one caller keeps beyond these displaces its own oldest results, and nobody else's."""
    resumption_bytes: int = 64 * 1024 * 1024
    """What legacy HTTP clients were sent, kept so that they can resume a broken stream."""
    sessions: int = 4_000
    """Legacy HTTP sessions; beyond them the caller with the most loses the one that was idle for longest."""
    connections: int = 2_000
    """Open HTTP connections; beyond them, the one that has waited longest without a request is closed."""
    unread_bytes: int = 256 * 1024 * 1024
    """What all HTTP clients together have not read of their responses, and again one client over stdio."""
    arriving_requests: int = 256
    """HTTP requests whose body has not arrived yet; beyond them, the one that has taken longest is refused."""
    request_seconds: float = 15.0
    """How long a client may take to send the head of an HTTP request, and again its body."""
    calls: int = 1_000
    """Requests of all clients that run at the same time."""
    calls_per_client: int = 200
    """Requests of one client that run at the same time."""
    calls_per_caller: int = 100
    """Calls of one caller that run at one server at the same time."""
    calls_per_minute: int | None = None
    """Calls that one caller may make at one server in a minute; None: as many as it wants."""
    workspaces: int = 1_000
    workspaces_per_caller: int = 200
    workspace_seconds: float = 86_400.0
    auto_tokens: int = 10_000
    """Mode `auto` binds everything while all definitions together cost less: 5 % of a 200k window."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """What is recorded about use, on this machine and nowhere else; docs/telemetry.md says it in full."""

    enabled: bool = True
    queries: Keeping = "keep"
    arguments: Keeping = "omit"
    days: float = 30.0
    """How long everything is kept."""
    megabytes: float = 1_000.0
    """How much of it; the oldest goes first."""
    learning: bool = True
    """Let searches learn from the calls that followed earlier ones; needs queries to be kept."""
    tools: bool = False
    """Offer get_stats, get_ab_test_report and report_task to clients."""


DEFAULT_TELEMETRY = TelemetrySettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The audit log: who was allowed or refused which request, and how it ended."""

    enabled: bool = False
    required: bool = False
    """Refuse requests that cannot be recorded."""
    arguments: bool = False
    """Record the arguments of calls, and not only their hash."""
    days: float = 365.0
    """How long it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSettings:
    """Who picks for smart_select_tools; where nothing is said, the first provider whose key is in the environment."""

    provider: Provider | None = None
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSettings:
    """Programs that call tools: whether `run_code` is offered, what runs unasked, and the budgets of one program."""

    enabled: bool = False
    allow: Allow = "read"
    """`read` runs tools that are read-only by this configuration, and asks the user before any other; `write` never."""
    read_only: tuple[str, ...] = ()
    """Globs over tool ids (`server/name`) that are read-only, beside those with `effect: read_only`."""
    calls: int = 100
    seconds: float = 60.0
    """How long a program may take; questions to the user do not count."""
    memory_megabytes: float = 32.0
    output_characters: int = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How tools are searched. `ToolFilter` takes the same words."""

    embedder: str | Mapping[str, Any] = field(default="auto", repr=False)
    """auto, small, small:256, static, none, a model folder, provider:model, or a mapping with provider or path."""
    dimensions: int | None = None
    """Keep only the first dimensions of the model's vectors."""
    pipeline: str = "default"
    reranker: str | Mapping[str, Any] | None = field(default=None, repr=False)
    """cohere, voyage or jina, with :MODEL where you choose one, or a mapping with provider; None does not rerank."""
    index: str = "exact"
    """exact, approximate, or milvus:ADDRESS."""
    saved_index: bool | str = True
    """Save the index, so that the next start does not build it again; a folder can be shared by several machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is said on stderr, and whether a person or a machine reads it."""

    level: LogLevel = "info"
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A whole configuration."""

    servers: Mapping[str, ServerSettings] = field(default_factory=dict)
    mode: Mode = "search"
    preset: str | None = None
    presets: Mapping[str, PresetSettings] = field(default_factory=dict)
    toolsets: Mapping[str, ToolsetSettings] = field(default_factory=dict)
    intents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Intent to toolset names."""
    always_load: tuple[str, ...] = ()
    search: SearchSettings = SearchSettings()
    expansions: tuple[Path, ...] = ()
    """Files of what this team's words mean, beside the shipped one (text/data/expansions.txt)."""
    tokens: Mapping[str, TokenSettings] = field(default_factory=dict)
    oauth: OAuthSettings = NO_ISSUERS
    limits: Limits = DEFAULT_LIMITS
    telemetry: TelemetrySettings = DEFAULT_TELEMETRY
    audit: AuditSettings = AuditSettings()
    storage: str = field(default="", repr=False)
    """The address of a shared database; empty: files of this user."""
    logs: LogSettings = LogSettings()
    smart_select: SelectionSettings | None = None
    """None: smart_select_tools is not offered."""
    code: CodeSettings = CodeSettings()
    dashboard: bool = True
    """Serve the dashboard next to `/mcp`."""
    source: str = ""
    """The file it was read from."""

    @property
    def has_callers(self) -> bool:
        """Return whether the configuration says who may call over HTTP."""
        return bool(self.tokens or self.oauth.issuers)

    def asker(self, caller: str) -> Asker:
        """Return the identity of a caller for learning, and the group it shares exemplars with."""
        token = self.tokens.get(caller)
        return Asker(caller, f"group:{token.group}" if token and token.group else caller)

    def asker_of_rule(self, caller: str, issuer: str, rule: int) -> Asker:
        """Return the same for a caller that a rule of an issuer lets in."""
        rules = self.oauth.issuers[issuer].rules if issuer in self.oauth.issuers else ()
        group = rules[rule].group if 0 <= rule < len(rules) else None
        return Asker(caller, f"group:{group}" if group else caller)


def hash_token(token: str) -> str:
    """Return the form in which a token is stored; tokens are long and random, so one round is enough."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
