"""Why a server does not work: the cause in its own words, and what to do about it."""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from shortlist.config.settings import ServerSettings, StdioTransport
from shortlist.models import Json
from shortlist.upstream.events import UpstreamStatus

LEFT_BEHIND = re.compile(
    r"^(https?_proxy|no_proxy|all_proxy|HTTPS?_PROXY|NO_PROXY|ALL_PROXY|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|REQUESTS_CA_BUNDLE"
    r"|AWS_[A-Z_]+|KUBECONFIG|GOOGLE_APPLICATION_CREDENTIALS|AZURE_[A-Z_]+|DOCKER_HOST|SSH_AUTH_SOCK)$"
)
"""Variables that servers need from the user's environment, and that a client would have passed on by itself."""
_SYMPTOMS = {
    "AWS_": re.compile(r"credential|AWS|region", re.IGNORECASE),
    "KUBECONFIG": re.compile(r"kube|cluster|localhost:8080", re.IGNORECASE),
    "GOOGLE_": re.compile(r"credential|google", re.IGNORECASE),
    "AZURE_": re.compile(r"credential|azure", re.IGNORECASE),
    "DOCKER_HOST": re.compile(r"docker", re.IGNORECASE),
    "SSH_AUTH_SOCK": re.compile(r"publickey|ssh", re.IGNORECASE),
    "": re.compile(
        r"ECONNREFUSED|ENOTFOUND|ETIMEDOUT|ECONNRESET|EAI_AGAIN|certificate|proxy|unreachable|getaddrinfo|fetch failed"
        r"|timed? ?out|Name or service not known|name resolution",
        re.IGNORECASE,
    ),
}
_VARIABLE = r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
_WANTED = (
    r"(?:required|missing|not set|must be set|not provided|not found|undefined|not defined|please set|please provide)"
)
_NODE, _UV = "Install Node.js.", "Install uv: pip install uv."
_INSTALLS = {"npx": _NODE, "node": _NODE, "uvx": _UV, "uv": _UV, "docker": "Install Docker."}
_STDOUT = "[stdout, not a message] "


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change of the configuration that would help: the keys below a server, and their new value."""

    what: str
    keys: tuple[str, ...]
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDiagnosis:
    """One problem of one server."""

    server: str
    cause: str
    remedy: str
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenServer:
    """All that is known of a server that does not work."""

    settings: ServerSettings
    status: UpstreamStatus
    environment: Mapping[str, str]
    """The user's own."""

    @property
    def said(self) -> str:
        return "\n".join(self.status.stderr)

    @property
    def inherited(self) -> Mapping[str, str]:
        transport = self.settings.transport
        return transport.environment if isinstance(transport, StdioTransport) else {}

    def problem(self, cause: str, remedy: str, fix: Fix | None = None) -> ServerDiagnosis:
        return ServerDiagnosis(server=self.settings.name, cause=cause, remedy=remedy, fix=fix)


Rule: TypeAlias = Callable[[BrokenServer], ServerDiagnosis | None]


def diagnose(case: BrokenServer) -> ServerDiagnosis:
    """Return the most specific explanation of why a server is not ready."""
    for rule in RULES:
        found = rule(case)
        if found is not None:
            return found
    last = _last_words(case.status.stderr)
    cause = (case.status.error or case.status.state).partition("; it last said:")[0]
    return case.problem(
        f"{cause}{f' (it last said: {last})' if last else ''}", f"Run `shortlist logs {case.settings.name}`."
    )


def _no_command(case: BrokenServer) -> ServerDiagnosis | None:
    transport = case.settings.transport
    if not isinstance(transport, StdioTransport):
        return None
    path = transport.environment.get("PATH")
    if shutil.which(transport.command, path=path):
        return None
    elsewhere = shutil.which(transport.command)
    fix = Fix(what=f"write its whole path, {elsewhere}", keys=("command",), value=elsewhere) if elsewhere else None
    remedy = _INSTALLS.get(transport.command, "Install it, or write its whole path as 'command'.")
    return case.problem(f"there is no command {transport.command!r} on its PATH", remedy, fix)


def _needs_login(case: BrokenServer) -> ServerDiagnosis | None:
    if case.status.state != "needs_auth" and "HTTP 401" not in (case.status.error or ""):
        return None
    name = re.sub(r"\W", "_", case.settings.name).upper() + "_TOKEN"
    reference = f"Bearer ${{{name}}}"
    remedy = (
        f"Run `shortlist login {case.settings.name}`, or get a token from the provider, set {name} to it, "
        f'and send it: "headers": {{"Authorization": "{reference}"}}.'
    )
    fix = Fix(what=f"send {name} as a bearer token", keys=("headers", "Authorization"), value=reference)
    return case.problem("the server wants a login (HTTP 401)", remedy, fix if case.environment.get(name) else None)


def _missing_file(case: BrokenServer) -> ServerDiagnosis | None:
    found = re.search(r"Cannot find module '([^']+)'|can't open file '([^']+)'", case.said)
    if found is None:
        return None
    name = next(group for group in found.groups() if group)
    if not name.startswith(("/", ".")) and not re.match(r"[A-Za-z]:\\", name):
        return case.problem(f"Cannot find module {name!r}", f"Install it where the server is: npm install {name}")
    near = _near(Path(name))
    hint = f"There is {near}; correct the path in 'args'." if near else "Correct the path in 'args'."
    return case.problem(f"Cannot find module {name!r}: there is no such file", hint)


def _near(path: Path) -> Path | None:
    """Find a file of the same name close by: paths of builds move between versions."""
    folder = next((parent for parent in path.parents if parent.is_dir()), None)
    if folder is None or len(folder.parts) < 3:
        return None
    return next((each for each in sorted(folder.glob(f"*/{path.name}"))), None)


def _missing_package(case: BrokenServer) -> ServerDiagnosis | None:
    module = re.search(r"No module named '?([\w.]+)'?", case.said)
    if module:
        return case.problem(
            f"Python has no module {module[1]!r}", f"Install it for that Python, or run it with uvx: uvx {module[1]}"
        )
    package = re.search(
        r"404 .*?'(@?[\w./-]+)@[^']*' is not in this registry|404 Not Found - GET \S*?/(@?[\w%./-]+)\s", case.said
    )
    if package or "npm error 404" in case.said or "E404" in case.said:
        name = next((group for group in package.groups() if group), "") if package else ""
        return case.problem(
            f"npm has no package {name.replace('%2f', '/')!r}" if name else "npm does not find the package",
            "Correct its name in 'args'.",
        )
    if re.search(r"No solution found|not found in the package registry", case.said):
        return case.problem("the package index has no such package", "Correct its name in 'args'.")
    return None


def _port_taken(case: BrokenServer) -> ServerDiagnosis | None:
    found = re.search(r"EADDRINUSE[^\n]*?:(\d+)|[Aa]ddress already in use[^\n]*?(\d{2,5})?", case.said)
    if found is None:
        return None
    port = next((group for group in found.groups() if group), None)
    which = f"port {port}" if port else "its port"
    return case.problem(
        f"{which} is in use", f"Stop what uses {which}, or give the server another one in 'args' or 'env'."
    )


def _missing_key(case: BrokenServer) -> ServerDiagnosis | None:
    pattern = re.compile(rf"{_VARIABLE}[^\n]*?{_WANTED}|{_WANTED}[^\n]*?{_VARIABLE}", re.IGNORECASE)
    names = [next(g for g in found.groups() if g) for found in pattern.finditer(case.said)]
    name = next((each for each in names if each.isupper() and each not in case.inherited), None)
    if name is None:
        return None
    reference = f"${{{name}}}"
    fix = Fix(what=f"pass {name} on", keys=("env", name), value=reference) if case.environment.get(name) else None
    where = "It is set in your environment and not passed on." if fix else f"Set {name} in your environment."
    return case.problem(f"the server needs {name}", f'{where} Add "env": {{"{name}": "{reference}"}}.', fix)


def _left_behind(case: BrokenServer) -> ServerDiagnosis | None:
    """Find variables that the user has, the server lacks, and its own words call for."""
    if not isinstance(case.settings.transport, StdioTransport):
        return None
    words = f"{case.said}\n{case.status.error or ''}"
    names = [
        name
        for name in sorted(case.environment)
        if LEFT_BEHIND.match(name) and name not in case.inherited and _symptom(name).search(words)
    ]
    if not names:
        return None
    fix = Fix(what=f"pass {', '.join(names)} on", keys=("shortlist", "inherit_env"), value=names)
    return case.problem(
        f"your environment has {', '.join(names)}, and the server does not get it: only safe variables are passed on",
        'Name them under the server: "shortlist": {"inherit_env": […]}.',
        fix,
    )


def _symptom(name: str) -> re.Pattern[str]:
    return next(pattern for prefix, pattern in _SYMPTOMS.items() if name.startswith(prefix))


def _text_on_stdout(case: BrokenServer) -> ServerDiagnosis | None:
    line = next((line.removeprefix(_STDOUT) for line in case.status.stderr if line.startswith(_STDOUT)), None)
    if line is None:
        return None
    return case.problem(
        f"it writes text to stdout instead of MCP messages: {line[:120]!r}",
        "Start it in its stdio mode (often an argument such as '--stdio'), or use its 'url' if it serves HTTP.",
    )


def _slow(case: BrokenServer) -> ServerDiagnosis | None:
    if "did not get ready in" not in (case.status.error or ""):
        return None
    seconds = int(case.settings.start_seconds * 2)
    fix = Fix(what=f"wait {seconds} s", keys=("shortlist", "start_timeout"), value=seconds)
    return case.problem(
        f"it did not get ready in {case.settings.start_seconds:g} s",
        "A first start may download its package. Try again, or raise its start_timeout.",
        fix,
    )


def _silent(case: BrokenServer) -> ServerDiagnosis | None:
    if case.status.state != "connecting" or case.status.error:
        return None
    return case.problem(
        "it was started, but does not answer",
        "A first start may download its package: try again. Otherwise look up how it is started for MCP over stdio, "
        f"and read what it wrote: `shortlist logs {case.settings.name}`.",
    )


def _unreachable(case: BrokenServer) -> ServerDiagnosis | None:
    error = case.status.error or ""
    if "cannot be reached" not in error:
        return None
    return case.problem(error, "Check the address in 'url', and that the server is running.")


RULES: tuple[Rule, ...] = (
    _no_command,
    _needs_login,
    _missing_file,
    _missing_package,
    _port_taken,
    _missing_key,
    _left_behind,
    _text_on_stdout,
    _slow,
    _silent,
    _unreachable,
)
"""From the most specific to the least; the first that matches explains the problem."""


def _last_words(lines: Iterable[str]) -> str:
    """Return the most informative line of stderr: an error message, else the last line outside a stack."""
    written = [line.strip() for line in lines if line.strip() and not line.startswith("[exited")]
    named = [line for line in written if re.search(r"\b(error|fatal|exception|failed|cannot)\b", line, re.IGNORECASE)]
    plain = [line for line in written if len(line) > 3 and not re.match(r"at |\^+$|File |node:|Node\.js", line)]
    return (named or plain or [""])[-1][:200]
