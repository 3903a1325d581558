"""Puts stored secrets in the place of `${keyring:NAME}` in the settings of the gateway itself.

The settings of servers keep the references: their secrets are read each time a server starts.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from shortlist.config.settings import IssuerSettings, Settings
from shortlist.config.variables import MissingSecret, has_secrets, with_secrets
from shortlist.errors import InvalidConfig
from shortlist.paths import data_folder

SECRET = "secret:"  # noqa: S105 - a prefix
"""How the names begin of secrets that the configuration refers to."""

Choice = TypeVar("Choice")


def stored_secret(name: str) -> str | None:
    """Return the secret that `shortlist secret set` stored under a name."""
    from shortlist.storage.secrets import FileSecrets  # noqa: PLC0415 - few configurations have secrets

    return FileSecrets(data_folder()).get(f"{SECRET}{name}")


def revealed(settings: Settings) -> Settings:
    """Return settings with the secrets of storage, providers and issuers; raise InvalidConfig for a missing one."""
    search, oauth, selection = settings.search, settings.oauth, settings.smart_select
    if selection is not None and selection.api_key:
        selection = replace(selection, api_key=_value(selection.api_key, "smart_select.api_key"))
    return replace(
        settings,
        storage=_value(settings.storage, "storage"),
        search=replace(search, embedder=_model(search.embedder), reranker=_model(search.reranker)),
        smart_select=selection,
        oauth=replace(oauth, issuers={name: _issuer(issuer) for name, issuer in oauth.issuers.items()}),
    )


def _model(choice: Choice) -> Choice | Any:
    """Return which model was chosen, by its name or by its options with a key."""
    if not isinstance(choice, Mapping) or not isinstance(choice.get("api_key"), str):
        return choice
    return {**choice, "api_key": _value(choice["api_key"], "search")}


def _issuer(issuer: IssuerSettings) -> IssuerSettings:
    asked = issuer.introspection
    if asked is None:
        return issuer
    secret = _value(asked.client_secret, f"oauth.issuers.{issuer.name}.introspection")
    return replace(issuer, introspection=replace(asked, client_secret=secret))


def _value(text: str, place: str) -> str:
    if not has_secrets(text):
        return text
    try:
        return with_secrets(text, stored_secret)
    except MissingSecret as missing:
        raise InvalidConfig(f"shortlist.{place}: {missing}") from None
