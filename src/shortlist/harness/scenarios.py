"""Scenario files: calls in order, and the toolsets that each scenario needs.

`{"scenarios": [{"name": …, "calls": [{"tool": …, "args": {…}}]}], "expected_toolset_suggestions": {name: [toolset]}}`
is NodeBench's format; the names of its helpers are translated to ours.
"""

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shortlist.errors import InvalidInput
from shortlist.gateway.discovery import DESCRIBE
from shortlist.gateway.menus import BY_NAME
from shortlist.models import Json

QUICK_REFERENCE = "get_tool_quick_ref"
"""NodeBench's helper that shows one tool."""
HELPERS = frozenset({"get_workflow_chain", "getMethodology"})
"""NodeBench's helpers without an equivalent here: they are skipped and counted."""

Read = TypeVar("Read", bound=BaseModel)


class FileValue(BaseModel):
    model_config = ConfigDict(frozen=True)


class ScenarioCall(FileValue):
    """One call of a scenario."""

    tool: str
    args: dict[str, Json] = Field(default_factory=dict)


class Scenario(FileValue):
    """Calls in order, and the toolsets that should be reachable by the end."""

    name: str
    description: str = ""
    calls: tuple[ScenarioCall, ...]
    expected: tuple[str, ...] = ()


class _File(FileValue):
    scenarios: tuple[Scenario, ...] = Field(min_length=1)
    expected_toolset_suggestions: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def read_scenarios(path: Path) -> tuple[Scenario, ...]:
    """Read a scenario file; raises InvalidInput for the first error."""
    file = read_json(path, _File)
    expected = file.expected_toolset_suggestions
    return tuple(
        scenario.model_copy(update={"expected": expected.get(scenario.name, scenario.expected)})
        for scenario in file.scenarios
    )


def translated(call: ScenarioCall) -> ScenarioCall | None:
    """Translate a call to this gateway's names; None for a helper that has no equivalent."""
    if call.tool in HELPERS:
        return None
    if call.tool == QUICK_REFERENCE:
        return ScenarioCall(tool=DESCRIBE.name, args={"names": [call.args.get("toolName", "")]})
    if call.tool in BY_NAME:
        tool, translate = BY_NAME[call.tool]
        return ScenarioCall(tool=tool.name, args=dict(translate(call.args)))
    return call


def read_json(path: Path, model: type[Read]) -> Read:
    """Read and validate a JSON file."""
    try:
        return model.model_validate(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise InvalidInput(f"Cannot read {str(path)!r}: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidInput(f"{path}: {place}: {first['msg']}. See docs/experiments.md for the format.") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}.") from None
