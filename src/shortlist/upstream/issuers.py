"""Reaches the authorization servers that the configuration trusts, for their keys and for introspection."""

import base64
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import httpx2

from shortlist.config.settings import IssuerSettings
from shortlist.models import Json
from shortlist.upstream.addresses import ForbiddenAddress, fetch
from shortlist.upstream.guarded import guarded_client
from shortlist.upstream.http import trusted


class IssuerClient:
    """An IssuerLink over HTTP: bounded in time and size, without redirects, to the issuer's hosts or public ones."""

    async def fetch(self, issuer: IssuerSettings, url: str) -> Mapping[str, Json]:
        """Return a JSON document of the issuer."""
        return await self._ask(issuer, "GET", url)

    async def introspect(self, issuer: IssuerSettings, token: str) -> Mapping[str, Json]:
        """Ask the issuer about an opaque token."""
        asked = issuer.introspection
        if asked is None:
            raise ValueError(f"issuer {issuer.name!r} has no introspection endpoint")
        pair = f"{quote(asked.client_id, safe='')}:{quote(asked.client_secret, safe='')}"
        headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return await self._ask(issuer, "POST", asked.url, {"token": token}, headers)

    async def _ask(
        self,
        issuer: IssuerSettings,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, Json]:
        configured = (issuer.issuer, issuer.jwks_uri or "", issuer.introspection.url if issuer.introspection else "")
        hosts = [host for address in configured if (host := urlsplit(address).hostname)]
        try:
            async with guarded_client(await trusted(), hosts, allow_private=issuer.allow_private_addresses) as http:
                response = await fetch(http, http.build_request(method, url, data=form, headers=headers))
        except (ForbiddenAddress, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise OSError(f"{urlsplit(url).hostname} cannot be asked: {error}") from None
        raw = response.json() if response.status_code == 200 else None
        if not isinstance(raw, dict):
            raise ValueError(f"{urlsplit(url).hostname} answered {response.status_code} and no JSON object")
        return raw
