"""Serving the running experiment: who gets which variant, and that each exposure is recorded."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from shortlist.telemetry.events import Exposed, Record
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Experiment, Variant

REMEMBERED_EXPOSURES = 10_000
"""An exposure that is recorded again, after so many others or a restart, is the same one to the store."""

Assign: TypeAlias = Callable[[str, str], Variant]
"""From a caller's name and its workspace to how it is served."""


def as_configured(_: str, __: str) -> Variant:
    """Serve everybody as configured: no experiment runs."""
    return AS_CONFIGURED


class Assignments:
    """Assigns workspaces to the variants of whatever experiment runs, and records the first time each is served."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._experiment: Experiment | None = None
        self._served: OrderedDict[str, Variant] = OrderedDict()

    def __call__(self, caller: str, workspace: str) -> Variant:
        if self._experiment is None:
            return AS_CONFIGURED
        variant = self._served.get(workspace)
        return variant or self._expose(self._experiment, caller, workspace)

    def follow(self, experiment: Experiment | None) -> bool:
        """Take up the experiment that runs now, if any; say whether it is another one."""
        if experiment == self._experiment:
            return False
        self._experiment = experiment
        self._served.clear()
        return True

    def _expose(self, experiment: Experiment, caller: str, workspace: str) -> Variant:
        variant = experiment.assign(workspace)
        self._served[workspace] = variant
        if len(self._served) > REMEMBERED_EXPOSURES:
            self._served.popitem(last=False)
        self._record(Exposed(caller=caller, workspace=workspace, experiment=experiment.name, variant=variant.name))
        return variant
