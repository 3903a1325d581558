"""The foreign shapes of a configuration, checked by pydantic; unknown keys are refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shortlist.config.settings import Effect, Keeping, LogLevel, Mode, Provider

Kind = Literal["stdio", "local", "http", "streamable-http", "streamable_http", "streamableHttp", "remote", "sse"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Texts = tuple[str, ...]
TokenHash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolShape(Shape):
    description: str | None = None
    keywords: Texts = ()


class ServerOptions(Shape):
    """Ours, under a server's `shortlist` key."""

    title: str = ""
    description: str = ""
    categories: Texts = ()
    tags: Texts = ()
    always_load: Texts | bool = ()
    include: Texts = ("*",)
    exclude: Texts = ()
    timeout: Positive | None = None
    start_timeout: Positive | None = None
    max_concurrency: Count | None = None
    tools: dict[str, ToolShape] = {}
    inherit_env: Texts = ()


class ServerShape(Shape):
    """A server in the words of any client; what only concerns that client is accepted and not used."""

    type: Kind | None = None
    transport: Kind | None = None
    command: str | None = None
    args: Texts = ()
    env: dict[str, str | int | float | bool | None] = {}
    env_file: str | None = Field(None, alias="envFile")
    inherit_env: Texts = ()
    cwd: str | None = None
    url: str | None = None
    http_url: str | None = Field(None, alias="httpUrl")
    server_url: str | None = Field(None, alias="serverUrl")
    headers: dict[str, str] = {}
    disabled: bool = False
    enabled: bool = True
    include_tools: Texts | None = Field(None, alias="includeTools")
    exclude_tools: Texts = Field((), alias="excludeTools")
    disabled_tools: Texts = Field((), alias="disabledTools")
    tools: Texts | None = None
    description: str = ""
    shortlist: ServerOptions = ServerOptions()

    name: Any = None
    timeout: Any = None
    trust: Any = None
    auto_approve: Any = Field(None, alias="autoApprove")
    always_allow: Any = Field(None, alias="alwaysAllow")
    gallery: Any = None
    version: Any = None
    dev: Any = None
    oauth: Any = None
    auth: Any = None
    auth_provider: Any = Field(None, alias="authProviderType")
    icon: Any = None


class ToolsetShape(Shape):
    description: str = ""
    servers: Texts = ()
    tools: Texts = ()
    tags: Texts = ()
    categories: Texts = ()
    effects: tuple[Effect, ...] = ()
    used_with: Texts = ()


class PresetShape(Shape):
    toolsets: Texts = ()
    tools: Texts = ()


class TokenShape(Shape):
    hash: TokenHash
    servers: Texts | None = None
    toolsets: Texts | None = None
    group: str | None = None


class LimitsShape(Shape):
    message_bytes: Count | None = None
    tools_per_server: Count | None = None
    breaker_failures: Count | None = None
    notifications_per_second: Positive | None = None
    result_characters: Count | None = None
    result_seconds: Positive | None = None
    results: Count | None = None
    workspaces: Count | None = None
    workspace_seconds: Positive | None = None
    auto_tokens: Count | None = None


class TelemetryShape(Shape):
    enabled: bool = True
    queries: Keeping | None = None
    arguments: Keeping | None = None
    days: Positive | None = None
    megabytes: Positive | None = None
    learning: bool = True
    tools: bool = False


class SelectionShape(Shape):
    provider: Provider | None = None
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None


class LogsShape(Shape):
    level: LogLevel = "info"
    json_lines: bool = Field(default=False, alias="json")


class Options(Shape):
    """Ours, under the top-level `shortlist` key."""

    mode: Mode = "search"
    preset: str | None = None
    presets: dict[str, PresetShape | Texts] = {}
    toolsets: dict[str, ToolsetShape | Texts] = {}
    intents: dict[str, Texts] = {}
    always_load: Texts = ()
    expansions: Texts = ()
    tokens: dict[str, TokenShape] = {}
    limits: LimitsShape = LimitsShape()
    telemetry: TelemetryShape = TelemetryShape()
    dashboard: bool = True
    logs: LogsShape = LogsShape()
    smart_select: SelectionShape | bool = False


class Document(Shape):
    """A whole file, its servers not yet checked so that each is named in its own error."""

    schema_: str | None = Field(None, alias="$schema")
    mcp_servers: dict[str, Any] = Field({}, alias="mcpServers")
    mcp_servers_toml: dict[str, Any] = Field({}, alias="mcp_servers")
    servers: dict[str, Any] = {}
    inputs: list[Any] = []
    shortlist: Options = Options()
