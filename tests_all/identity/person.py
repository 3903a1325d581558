"""A person at a browser: opens a login link, signs in, consents, and follows the way back."""

import re
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2

MAX_STEPS = 12
_ACTION = re.compile(r'<form[^>]*action="([^"]+)"')
_PROMPT = re.compile(r'name="prompt" value="([^"]+)"')


async def sign_in(link: str, login: str, redirect_uri: str) -> dict[str, str]:
    """Go through the pages of the authorization server; return the query that comes back to the redirect URI."""
    async with httpx2.AsyncClient(follow_redirects=False) as browser:
        response = await browser.get(link)
        for _ in range(MAX_STEPS):
            if response.is_redirect:
                target = urljoin(str(response.url), response.headers["location"])
                if target.startswith(redirect_uri):
                    return {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
                response = await browser.get(target)
            else:
                action, prompt = _ACTION.search(response.text), _PROMPT.search(response.text)
                assert action is not None, response.text
                assert prompt is not None, response.text
                form = {"prompt": prompt[1], "login": login, "password": "any"}
                response = await browser.post(unescape(action[1]), data=form)
    raise AssertionError(f"The login did not come back to {redirect_uri}: {response.text[:500]}")
