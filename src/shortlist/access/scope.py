"""What a principal may reach and do. A scope is compiled from the configuration alone, never from what servers say.

A token is limited by servers, tool globs and toolsets, and by the actions it may take. A toolset works in a scope when
servers, tool globs, tags and categories written in the configuration, or configured effects, define it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import get_args

from shortlist.access.principal import Principal
from shortlist.config.settings import (
    Action,
    ClaimRule,
    Confirm,
    Effect,
    IssuerSettings,
    Settings,
    TokenSettings,
    ToolsetSettings,
)
from shortlist.errors import InvalidConfig
from shortlist.models import ToolId

ACTIONS: frozenset[Action] = frozenset(get_args(Action))
IMPLIED: Mapping[Action, frozenset[Action]] = {"call": frozenset({"read", "see"}), "read": frozenset({"see"})}
"""Who may call a tool may also find it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Some tools. A tool belongs to the grant when every condition that is set holds."""

    servers: frozenset[str] | None = None
    globs: tuple[str, ...] = ()
    tools: frozenset[ToolId] | None = None

    def covers(self, tool_id: ToolId) -> bool:
        return (
            (self.servers is None or server_of(tool_id) in self.servers)
            and (self.tools is None or tool_id in self.tools)
            and (not self.globs or any(fnmatchcase(tool_id, glob) for glob in self.globs))
        )

    def covers_server(self, server: str) -> bool:
        """Return whether the grant holds every tool of a server, whatever tools it may get."""
        return self.tools is None and not self.globs and (self.servers is None or server in self.servers)

    def names_server(self, server: str) -> bool:
        """Return whether the grant names a server, before any of its tools are known."""
        return (
            (self.servers is None or server in self.servers)
            and (self.tools is None or any(server_of(tool_id) == server for tool_id in self.tools))
            and (not self.globs or any("/" in g and fnmatchcase(server, server_of(g)) for g in self.globs))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The tools a principal can reach, and the actions it may take on them."""

    grants: tuple[Grant, ...] | None = None
    """None: everything."""
    actions: frozenset[Action] = ACTIONS
    read_only: frozenset[ToolId] = frozenset()
    """The tools that are configured as read-only."""
    confirm: Confirm = "never"
    """Before which calls the principal is asked, whatever the server."""

    @property
    def is_limited(self) -> bool:
        return self.grants is not None or "see" not in self.actions

    def may_call(self, tool_id: ToolId) -> bool:
        """Return whether a tool in reach may be called."""
        return "call" in self.actions or ("read" in self.actions and tool_id in self.read_only)

    def covers(self, tool_id: ToolId) -> bool:
        return self.grants is None or any(grant.covers(tool_id) for grant in self.grants)

    def covers_server(self, server: str) -> bool:
        return self.grants is None or any(grant.covers_server(server) for grant in self.grants)

    def names_server(self, server: str) -> bool:
        return self.grants is None or any(grant.names_server(server) for grant in self.grants)


EVERYTHING = Scope()
NOTHING = Scope(grants=(), actions=frozenset())


def scopes_of(settings: Settings) -> dict[str, Scope]:
    """Compile the scope of every token and rule; raise InvalidConfig where one depends on what servers say."""
    compiled = {f"token:{name}": scope_of(token, settings) for name, token in settings.tokens.items()}
    for issuer in settings.oauth.issuers.values():
        for place, rule in enumerate(issuer.rules):
            compiled[f"{issuer.name}:{place}"] = scope_of(rule, settings, f"{issuer.name} rule {place + 1}")
    return compiled


def scope_of_principal(principal: Principal, scopes: Mapping[str, Scope], settings: Settings) -> Scope:
    """Return the compiled scope of a principal; empty if it is no longer valid."""
    if not principal.is_current(settings):
        return NOTHING
    if principal.kind == "token":
        return scopes[f"token:{principal.name}"]
    if principal.kind != "oauth":
        return EVERYTHING
    issuer, scope = settings.oauth.issuers[principal.issuer], scopes[f"{principal.issuer}:{principal.rule}"]
    return replace(scope, actions=scope.actions & actions_of(issuer, principal.granted)) if issuer.scopes else scope


def actions_of(issuer: IssuerSettings, granted: Iterable[str]) -> frozenset[Action]:
    """Return what some OAuth scopes of an issuer allow."""
    granted = frozenset(granted)
    return frozenset[Action]().union(*(with_implied(can) for name, can in issuer.scopes if name in granted))


def scopes_for(issuer: IssuerSettings, actions: Iterable[Action]) -> tuple[str, ...]:
    """Return OAuth scopes that together allow some actions, as few as the order of the configuration gives."""
    chosen: dict[str, frozenset[Action]] = {}
    for action in sorted(actions):
        if not any(action in allowed for allowed in chosen.values()):
            chosen |= next(
                ({name: with_implied(can)} for name, can in issuer.scopes if action in with_implied(can)), {}
            )
    return tuple(chosen)


def effects_of(settings: Settings) -> dict[ToolId, Effect]:
    """Return the configured effect of each tool that has one: the only statement of effect that is trusted."""
    return {
        f"{server.name}/{name}": override.effect
        for server in settings.servers.values()
        for name, override in server.tools.items()
        if override.effect is not None
    }


def unknown_names(settings: Settings) -> Iterator[str]:
    """Describe every name in the scope of a token or a rule that matches no server and no toolset."""
    limited: list[tuple[str, TokenSettings | ClaimRule]] = [(f"token {n!r}", t) for n, t in settings.tokens.items()]
    for issuer in settings.oauth.issuers.values():
        limited += [(f"issuer {issuer.name!r}, rule {place}", rule) for place, rule in enumerate(issuer.rules, 1)]
    for who, scope in limited:
        for name in scope.servers or ():
            if name not in settings.servers:
                yield f"{who}: no server {name!r}"
        for name in scope.toolsets or ():
            if name not in settings.toolsets and name not in settings.servers:
                yield f"{who}: no toolset {name!r}"


def server_of(tool_id: ToolId) -> str:
    """Return the server of a tool id, `server/name`."""
    return tool_id.partition("/")[0]


def scope_of(token: TokenSettings | ClaimRule, settings: Settings, name: str = "") -> Scope:
    """Compile the scope of one token, or of one rule under a name for errors."""
    name = token.name if isinstance(token, TokenSettings) else name
    actions = ACTIONS if token.can is None else with_implied(token.can)
    read_only = frozenset(i for i, effect in effects_of(settings).items() if effect == "read_only")
    if token.servers is None and token.toolsets is None and token.tools is None:
        return Scope(actions=actions, read_only=read_only, confirm=token.confirm)
    grants = [Grant(servers=frozenset(token.servers))] if token.servers else []
    if token.tools:
        grants.append(Grant(globs=token.tools))
    for toolset in token.toolsets or ():
        if toolset in settings.toolsets:
            grants.append(_grant(settings.toolsets[toolset], settings, name))
        elif toolset in settings.servers:
            grants.append(Grant(servers=frozenset({toolset})))
    return Scope(grants=tuple(grants), actions=actions, read_only=read_only, confirm=token.confirm)


def with_implied(actions: Iterable[Action]) -> frozenset[Action]:
    """Return actions with those that they imply."""
    chosen = frozenset(actions)
    return chosen.union(*(IMPLIED.get(action, frozenset()) for action in chosen))


def _grant(toolset: ToolsetSettings, settings: Settings, token: str) -> Grant:
    if toolset.used_with:
        raise _untrusted(token, toolset, "'used_with' follows what other callers do")
    conditions = [frozenset(toolset.servers)] if toolset.servers else []
    if toolset.tags:
        written = {server.name: server.tags for server in settings.servers.values()}
        conditions.append(_labelled(token, toolset, "tag", toolset.tags, written))
    if toolset.categories:
        written = {server.name: server.categories for server in settings.servers.values()}
        conditions.append(_labelled(token, toolset, "category", toolset.categories, written))
    servers = frozenset.intersection(*conditions) if conditions else None
    return Grant(servers=servers, globs=toolset.tools, tools=_with_effect(token, toolset, settings))


def _labelled(
    token: str, toolset: ToolsetSettings, kind: str, wanted: Iterable[str], written: Mapping[str, tuple[str, ...]]
) -> frozenset[str]:
    """Return the servers that the configuration gives one of these labels."""
    for label in wanted:
        if not any(label in labels for labels in written.values()):
            raise _untrusted(token, toolset, f"no server in the configuration has the {kind} {label!r}")
    return frozenset(name for name, labels in written.items() if not set(wanted).isdisjoint(labels))


def _with_effect(token: str, toolset: ToolsetSettings, settings: Settings) -> frozenset[ToolId] | None:
    if not toolset.effects:
        return None
    found = frozenset(
        i for i, effect in effects_of(settings).items() if not implied(effect).isdisjoint(toolset.effects)
    )
    if not found:
        raise _untrusted(token, toolset, f"no tool is configured with the effect {' or '.join(toolset.effects)}")
    return found


def implied(effect: Effect) -> frozenset[Effect]:
    """Return an effect with what it implies: a destructive tool also writes."""
    return frozenset({"write", "destructive"}) if effect == "destructive" else frozenset({effect})


def _untrusted(token: str, toolset: ToolsetSettings, why: str) -> InvalidConfig:
    return InvalidConfig(
        f"Token {token!r} is limited by toolset {toolset.name!r}, which the configuration does not define: {why}. "
        "Define it by servers or tool globs, or by tags, categories and effects written in the configuration."
    )
