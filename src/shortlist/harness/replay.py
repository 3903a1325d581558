"""Replays scenarios through a real client, once per variant, and compares the variants."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shortlist.evals.tables import Table
from shortlist.gateway.loading import LOAD_TOOLS, LOAD_TOOLSET, UNLOAD_TOOLSET
from shortlist.gateway.menus import META_NAMES
from shortlist.harness.gateway import CallAnswer, Connected, GatewayFolder, connected, list_tokens
from shortlist.harness.scenarios import Scenario, translated
from shortlist.telemetry.experiments.plan import Variant

_CHANGES_THE_LIST = frozenset(tool.name for tool in (LOAD_TOOLS, LOAD_TOOLSET, UNLOAD_TOOLSET))
_LOADS = frozenset(tool.name for tool in (LOAD_TOOLS, LOAD_TOOLSET))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One scenario under one variant."""

    scenario: str
    variant: str
    calls: int
    answered: int
    errors: int
    not_offered: int
    """Calls of tools that were not listed to this client, so a model could not have made them."""
    skipped: int
    """Calls of helpers that have no equivalent here."""
    tools_first: int
    tools_last: int
    list_tokens_first: int
    list_tokens_last: int
    """The fixed cost of each turn of a model: at the start and at the end."""
    answer_tokens: int
    milliseconds: float
    load_milliseconds: tuple[float, ...]
    reached: bool | None
    """Whether a tool of an expected toolset was listed or found; None where none is expected."""


async def replay(place: GatewayFolder, scenario: Scenario, variant: Variant) -> Replayed:
    """Run one scenario in a fresh session of a fresh gateway."""
    async with connected(place, *serve_arguments(variant)) as session:
        await session.ready()
        return await _replayed(session, scenario, variant)


def serve_arguments(variant: Variant) -> list[str]:
    """Return the arguments of `shortlist serve` for a variant."""
    chosen = {"--mode": variant.mode, "--preset": variant.preset}
    return [part for option, value in chosen.items() if value is not None for part in (option, value)]


async def _replayed(session: Connected, scenario: Scenario, variant: Variant) -> Replayed:
    first = listed = await session.tools()
    answers: list[CallAnswer] = []
    loads: list[float] = []
    seen = _names(listed)
    not_offered = skipped = 0
    for written in scenario.calls:
        call = translated(written)
        if call is None:
            skipped += 1
            continue
        if call.tool in META_NAMES and call.tool not in _names(listed):
            not_offered += 1
            continue
        answer = await session.call(call.tool, call.args)
        answers.append(answer)
        if call.tool in _LOADS:
            loads.append(answer.milliseconds)
        if call.tool in _CHANGES_THE_LIST:
            listed = await session.tools()
        seen |= _names(listed) | _named_in(answer.text)
    return Replayed(
        scenario=scenario.name,
        variant=variant.name,
        calls=len(scenario.calls),
        answered=sum(not answer.is_error for answer in answers),
        errors=sum(answer.is_error for answer in answers),
        not_offered=not_offered,
        skipped=skipped,
        tools_first=len(first),
        tools_last=len(listed),
        list_tokens_first=list_tokens(first),
        list_tokens_last=list_tokens(listed),
        answer_tokens=sum(answer.tokens for answer in answers),
        milliseconds=sum(answer.milliseconds for answer in answers),
        load_milliseconds=tuple(loads),
        reached=_reached(scenario, seen),
    )


def _names(tools: Sequence[Mapping[str, str]]) -> set[str]:
    return {tool["name"] for tool in tools}


def _named_in(text: str) -> set[str]:
    """Return the tools named in an answer, written as `server__tool`."""
    return set(re.findall(r"\b[\w.-]+?__[\w.-]+", text))


def _reached(scenario: Scenario, seen: set[str]) -> bool | None:
    if not scenario.expected:
        return None
    return any(name.startswith(f"{toolset}__") for toolset in scenario.expected for name in seen)


def totals(replayed: Sequence[Replayed]) -> Table:
    """Summarise and compare the variants."""
    variants = list(dict.fromkeys(each.variant for each in replayed))
    by_variant = {name: [each for each in replayed if each.variant == name] for name in variants}
    rows = tuple((label, *(figure(by_variant[name]) for name in variants)) for label, figure in _FIGURES.items())
    return Table("Variants compared", ("", *variants), rows)


def by_scenario(replayed: Sequence[Replayed]) -> Table:
    """Compare the variants for each scenario."""
    variants = list(dict.fromkeys(each.variant for each in replayed))
    cells = {(each.scenario, each.variant): _cell(each) for each in replayed}
    rows = tuple(
        (scenario, *(cells[scenario, variant] for variant in variants))
        for scenario in dict.fromkeys(each.scenario for each in replayed)
    )
    return Table("Scenarios", ("scenario", *variants), rows)


def _cell(each: Replayed) -> str:
    reached = "" if each.reached is None else ", reached" if each.reached else ", NOT reached"
    errors = f", {each.errors} errors" if each.errors else ""
    tools = f"{each.tools_first}→{each.tools_last}" if each.tools_first != each.tools_last else f"{each.tools_first}"
    tokens = each.list_tokens_last + each.answer_tokens
    return f"{each.answered}/{each.calls} answered{errors}, {tools} tools, {tokens:,} tokens{reached}"


def _sum(pick: Callable[[Replayed], int]) -> Callable[[Sequence[Replayed]], str]:
    return lambda all_: f"{sum(pick(each) for each in all_):,}"


def _mean(pick: Callable[[Replayed], float]) -> Callable[[Sequence[Replayed]], str]:
    return lambda all_: f"{sum(pick(each) for each in all_) / len(all_):,.1f}"


def _of_expected(all_: Sequence[Replayed]) -> str:
    expecting = [each for each in all_ if each.reached is not None]
    return f"{sum(bool(each.reached) for each in expecting)} of {len(expecting)}"


def _mean_load(all_: Sequence[Replayed]) -> str:
    times = [time for each in all_ for time in each.load_milliseconds]
    return f"{sum(times) / len(times):.1f}" if times else "–"


_FIGURES: Mapping[str, Callable[[Sequence[Replayed]], str]] = {
    "scenarios": lambda all_: str(len(all_)),
    "calls in the file": _sum(lambda each: each.calls),
    "answered": _sum(lambda each: each.answered),
    "errors": _sum(lambda each: each.errors),
    "not offered": _sum(lambda each: each.not_offered),
    "skipped helpers": _sum(lambda each: each.skipped),
    "expected toolset within reach": _of_expected,
    "tools listed at first (mean)": _mean(lambda each: each.tools_first),
    "tools listed at the end (mean)": _mean(lambda each: each.tools_last),
    "tokens of the list at first (mean)": _mean(lambda each: each.list_tokens_first),
    "tokens of the list at the end (mean)": _mean(lambda each: each.list_tokens_last),
    "tokens of answers (mean)": _mean(lambda each: each.answer_tokens),
    "milliseconds of calls (mean)": _mean(lambda each: each.milliseconds),
    "milliseconds of a load": _mean_load,
}
