"""Examples are the same on every run; `--hypothesis-profile=fuzz` looks further. Each test starts with a plain log."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Undo what a command or a benchmark that ran in this process configured."""
    root, ours = logging.getLogger(), logging.getLogger("shortlist")
    levels, handlers = (root.level, ours.level), tuple(root.handlers)
    yield
    logging.disable(logging.NOTSET)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    for handler in root.handlers[:]:
        if type(handler).__name__ == "StderrHandler" and handler not in handlers:
            root.removeHandler(handler)
