"""What a baseline is, and the two reasons for which one cannot run."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Tools: TypeAlias = Sequence[Mapping[str, Any]]
Embed: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]
T = TypeVar("T")


class Baseline(Protocol):
    """A tool search over one catalog, ready to answer."""

    @property
    def name(self) -> str: ...

    def rank(self, query: str, limit: int) -> list[str]:
        """Ids of at most `limit` tools, best first."""
        ...


Build: TypeAlias = Callable[[Tools, Embed | None], Baseline]


class BaselineUnavailableError(Exception):
    """A baseline that cannot run here, for a reason that says nothing about its quality."""


class NotInstalled(BaselineUnavailableError):
    """The peer's package is not in this environment."""

    def __init__(self, module: str, reason: str) -> None:
        self.module = module
        super().__init__(f"{module!r} cannot be imported ({reason}): see benchmarks/baselines/requirements.txt.")


class NeedsEmbedder(BaselineUnavailableError):
    """The peer ranks by vectors, and the run gave no embedder."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} ranks by vectors: pass an embedder.")


def package(module: str) -> Any:
    """Import a module of a peer when it is first needed: none of them is a dependency of ours."""
    try:
        return import_module(module)
    except ImportError as error:
        raise NotInstalled(module, str(error)) from error


def required(name: str, embed: Embed | None) -> Embed:
    if embed is None:
        raise NeedsEmbedder(name)
    return embed


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: an event loop per query would be most of what is measured."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for something: it needs an event loop.")
