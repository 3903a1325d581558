"""Examples are the same on every run; `--hypothesis-profile=fuzz` looks further. Each test starts with a plain log."""

import logging

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")


@pytest.fixture(autouse=True)
def plain_log() -> None:
    """Start without what commands, servers and benchmarks that ran in this process have configured."""
    root = logging.getLogger()
    logging.disable(logging.NOTSET)
    root.setLevel(logging.WARNING)
    for name, logger in tuple(logging.root.manager.loggerDict.items()):
        if name.startswith("shortlist") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)
    for handler in root.handlers[:]:
        if type(handler).__name__ == "StderrHandler":
            root.removeHandler(handler)
