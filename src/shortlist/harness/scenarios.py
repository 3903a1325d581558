"""Scenario files: calls in order, and the toolsets that each scenario's work needs.

`{"scenarios": [{"name": …, "calls": [{"tool": …, "args": {…}}]}], "expected_toolset_suggestions": {name: [toolset]}}`
is NodeBench's shape, and names of its own helpers are read as what they are here.
"""

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shortlist.errors import InvalidInput
from shortlist.gateway.metatools import ALIASES, DESCRIBE
from shortlist.models import Json

QUICK_REFERENCE = "get_tool_quick_ref"
"""NodeBench's helper that shows one tool."""
HELPERS = frozenset({"get_workflow_chain", "getMethodology"})
"""NodeBench's helpers that have no like here: they are skipped, and counted."""

Read = TypeVar("Read", bound=BaseModel)


class Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class Call(Value):
    """One call of a scenario."""

    tool: str
    args: dict[str, Json] = Field(default_factory=dict)


class Scenario(Value):
    """Calls in order, and the toolsets of which some should be within reach by the end."""

    name: str
    description: str = ""
    calls: tuple[Call, ...]
    expected: tuple[str, ...] = ()


class _File(Value):
    scenarios: tuple[Scenario, ...] = Field(min_length=1)
    expected_toolset_suggestions: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def read_scenarios(path: Path) -> tuple[Scenario, ...]:
    """Read a scenario file; says what is wrong with the first that is."""
    file = read_json(path, _File)
    expected = file.expected_toolset_suggestions
    return tuple(
        scenario.model_copy(update={"expected": expected.get(scenario.name, scenario.expected)})
        for scenario in file.scenarios
    )


def translated(call: Call) -> Call | None:
    """Give a call by the names of this gateway; None for a helper that has no like here."""
    if call.tool in HELPERS:
        return None
    if call.tool == QUICK_REFERENCE:
        return Call(tool=DESCRIBE["name"], args={"names": [call.args.get("toolName", "")]})
    if call.tool in ALIASES:
        name, translate = ALIASES[call.tool]
        return Call(tool=name, args=dict(translate(call.args)))
    return call


def read_json(path: Path, model: type[Read]) -> Read:
    """Read a file that somebody wrote, checked against its shape."""
    try:
        return model.model_validate(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidInput(f"{path}: {place}: {first['msg']}. docs/experiments.md shows the shape.") from None
    except ValueError as error:
        raise InvalidInput(f"{path} is no JSON: {error}.") from None
