"""One catalog as a filter sees it: names, labels, and what narrows it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from shortlist.catalog.naming import Names, names_of
from shortlist.library.options import FilterOptions
from shortlist.library.reading import SourceReading
from shortlist.models import Filters, ToolId

SIMILAR = 60
"""The minimum similarity, of 100, for a name to be suggested."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The limits of an answer, and the names in the options that match nothing."""

    filters: Filters
    always: tuple[ToolId, ...]
    evaluated: int
    warnings: tuple[str, ...]


class View:
    """Names and labels of a catalog, read when first needed; a changed catalog gets a new view."""

    def __init__(self, reading: SourceReading) -> None:
        self.catalog = reading.catalog
        self.originals = reading.originals
        self.problems = reading.problems

    @cached_property
    def names(self) -> Names:
        return names_of(self.catalog.members)

    @cached_property
    def categories(self) -> Mapping[str, frozenset[ToolId]]:
        servers = self.catalog.servers
        return _grouped(
            (label, tool.id)
            for tool in self.catalog.tools.values()
            for label in (tool.category, *servers[tool.server].categories)
        )

    @cached_property
    def tags(self) -> Mapping[str, frozenset[ToolId]]:
        servers = self.catalog.servers
        return _grouped(
            (label, tool.id)
            for tool in self.catalog.tools.values()
            for label in (*tool.tags, *servers[tool.server].tags)
        )

    @cached_property
    def own_names(self) -> Mapping[str, frozenset[ToolId]]:
        return _grouped((tool.name, tool.id) for tool in self.catalog.tools.values())

    @cached_property
    def claims(self) -> Mapping[bool, frozenset[ToolId]]:
        tools = self.catalog.tools.values()
        return {
            claim: frozenset(tool.id for tool in tools if tool.annotations.read_only is claim)
            for claim in (True, False)
        }

    def resolve(self, name: str) -> frozenset[ToolId]:
        """Find tools by id, by the name shown to models, or by their own name, which several may share."""
        if name in self.catalog.hashes:
            return frozenset({name})
        shown = self.names.by_name.get(name)
        return frozenset({shown}) if shown is not None else self.own_names.get(name, frozenset())

    def narrow(self, options: FilterOptions) -> Narrowing:
        """Turn options into limits that act before the ranking."""
        reading = _Reading(self)
        always = reading.ids("always_include", options.always_include)
        exclude = reading.ids("exclude", options.exclude)
        for tool_id in sorted(always & exclude):
            reading.warnings.append(f"{tool_id!r} is in always_include and in exclude: it is left out.")
        among = reading.among(options)
        return Narrowing(
            Filters(among=among, exclude=exclude),
            tuple(sorted(always - exclude)),
            len(self.catalog) - len(exclude) if among is None else len(among - exclude),
            tuple(reading.warnings),
        )


@dataclass(slots=True)
class _Reading:
    view: View
    warnings: list[str] = field(default_factory=list)

    def ids(self, option: str, names: Iterable[str]) -> frozenset[ToolId]:
        found: set[ToolId] = set()
        for name in names:
            ids = self.view.resolve(name)
            if not ids:
                self._unknown(option, name, self.view.names.by_name)
            found |= ids
        return frozenset(found)

    def among(self, options: FilterOptions) -> frozenset[ToolId] | None:
        """Return the tools that pass every limit, or None if there are no limits."""
        passing = list(self._parts(options))
        return frozenset.intersection(*passing) if passing else None

    def _parts(self, options: FilterOptions) -> Iterator[frozenset[ToolId]]:
        view = self.view
        if options.servers is not None:
            yield self._labelled("servers", options.servers, view.catalog.members)
        if options.categories is not None:
            yield self._labelled("categories", options.categories, view.categories)
        if options.tags is not None:
            yield self._labelled("tags", options.tags, view.tags)
        if options.read_only is not None:
            yield view.claims[options.read_only]

    def _labelled(self, option: str, wanted: Iterable[str], known: Mapping[str, Iterable[ToolId]]) -> frozenset[ToolId]:
        found: set[ToolId] = set()
        for name in wanted:
            if name not in known:
                self._unknown(option, name, known)
            found.update(known.get(name, ()))
        return frozenset(found)

    def _unknown(self, option: str, name: str, known: Iterable[str]) -> None:
        from rapidfuzz import process  # noqa: PLC0415

        close = process.extractOne(name, list(known), score_cutoff=SIMILAR)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        self.warnings.append(f"{option}: there is no {name!r} here{hint}")


def _grouped(pairs: Iterable[tuple[str, ToolId]]) -> Mapping[str, frozenset[ToolId]]:
    groups: dict[str, set[ToolId]] = {}
    for label, tool_id in pairs:
        if label:
            groups.setdefault(label, set()).add(tool_id)
    return {label: frozenset(ids) for label, ids in groups.items()}
