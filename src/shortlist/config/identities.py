"""The shapes of a configuration file that say who signs in where: callers at this gateway, this gateway at servers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shortlist.config.settings import Action, Confirm

Texts = tuple[str, ...]


class Shape(BaseModel):
    """An object of a file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OAuthShape(Shape):
    """How `shortlist login SERVER` signs in; most servers need none of it. See [identity](identity.md)."""

    client_id: str | None = None
    """The client that you registered with the provider. Example: `"shortlist-laptop"`"""
    client_secret: str | None = None
    """Its secret, best as a reference to a variable. Example: `"${WIKI_CLIENT_SECRET}"`"""
    client_metadata_url: str | None = None
    """The address of a client ID metadata document, for providers that accept one.
    Example: `"https://example.com/shortlist.json"`"""
    scopes: Texts = ()
    """Scopes to request besides those that the server names. Example: `["pages:read"]`"""
    allow_private_addresses: bool = False
    """Let the login contact private addresses other than the server's own. Example: `true`"""


class ClaimRuleShape(Shape):
    """What the holders of some access tokens may do. Every condition that is given must hold; `{}` matches all."""

    claim: str | None = None
    """A claim of the token, also as a path into it. Example: `"groups"`"""
    values: Texts = ()
    """One of these must be in the claim. Example: `["engineering"]`"""
    email_domains: Texts = ()
    """Domains of e-mail addresses; only an address that the issuer has verified counts. Example: `["example.com"]`"""
    servers: Texts | None = None
    """Servers that these callers may use; without it, and without `toolsets` and `tools`, all. Example: `["wiki"]`"""
    toolsets: Texts | None = None
    """Toolsets that they may use. Example: `["reading"]`"""
    tools: Texts | None = None
    """Tools that they may use, as globs over tool ids. Example: `["wiki/get_*"]`"""
    can: tuple[Action, ...] | None = None
    """What they may do, as for [tokens](#shortlisttokensname); without it, everything. Example: `["read"]`"""
    group: str | None = None
    """Callers of one group learn from each other's use. Example: `"support"`"""
    confirm: Confirm = "never"
    """Ask these people before a call, as for servers; the stricter setting applies. Example: `"destructive"`"""


class IntrospectionShape(Shape):
    """How opaque access tokens are checked (RFC 7662)."""

    url: str
    """The introspection endpoint. Example: `"https://login.example.com/introspect"`"""
    client_id: str
    """The client that you registered for this gateway. Example: `"shortlist"`"""
    client_secret: str
    """Its secret, best as a reference to a variable or a stored secret. Example: `"${keyring:introspection}"`"""


class IssuerShape(Shape):
    """An authorization server whose access tokens are accepted. See [identity](identity.md)."""

    issuer: str
    """Its issuer identifier, exactly as the tokens state it in `iss`. Example: `"https://login.example.com"`"""
    audiences: Texts = ()
    """Accepted values of `aud`; without it, `resource`. Example: `["api://shortlist"]`"""
    jwks_uri: str | None = None
    """Where its keys are; without it, the issuer's metadata is asked. Example: `"https://login.example.com/keys"`"""
    introspection: IntrospectionShape | None = None
    """How opaque tokens are checked; without it, only JWTs are accepted.
    Example: `{"url": "https://login.example.com/introspect", "client_id": "gateway", "client_secret": "${SECRET}"}`"""
    scopes: dict[str, tuple[Action, ...]] = {}
    """The actions that each OAuth scope of a token allows; without it, scopes do not matter.
    Example: `{"tools:read": ["read"], "tools:call": ["call"]}`"""
    rules: Annotated[tuple[ClaimRuleShape, ...], Field(min_length=1)]
    """What callers may do; the first rule that matches a token decides.
    Example: `[{"claim": "groups", "values": ["engineering"]}, {"can": ["read"]}]`"""
    allow_private_addresses: bool = False
    """Let the keys be on a private address other than the issuer's own. Example: `true`"""


class ResourceServerShape(Shape):
    """This gateway as an OAuth 2.1 resource server: callers sign in with your identity provider."""

    resource: str
    """The URL under which clients reach this gateway. Example: `"https://tools.example.com/mcp"`"""
    issuers: dict[str, IssuerShape]
    """Trusted authorization servers, by a name of your choice.
    Example: `{"company": {"issuer": "https://login.example.com", "rules": [{"can": ["read"]}]}}`"""
