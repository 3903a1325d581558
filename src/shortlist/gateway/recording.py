"""What happens at the gateway, turned into events. Tokens are counted later, by whoever stores the events."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shortlist.access.catalog import ScopedCatalog
from shortlist.config.settings import Mode
from shortlist.disclosure.budget import estimate_tokens
from shortlist.disclosure.render import compact_json
from shortlist.gateway.arguments import SearchRequest, SelectRequest, answer_tokens
from shortlist.gateway.view import ServedView
from shortlist.gateway.workspaces import Caller, WorkspaceKey, activity_key
from shortlist.models import Hit, Json, SearchResult, ToolId
from shortlist.selection import Selection
from shortlist.telemetry.events import (
    Called,
    CallOutcome,
    CatalogChanged,
    CircleBroken,
    Described,
    FoundTool,
    RecordEvent,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    ToolsListed,
    ToolsLoaded,
    ToolsUnloaded,
    UpstreamChanged,
    record_nothing,
)
from shortlist.telemetry.experiments.plan import Variant
from shortlist.telemetry.measures import Later

REMEMBERED_SESSIONS = 10_000

Answer = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A call that was sent to its server and has ended."""

    tool: ToolId
    arguments: Mapping[str, Json]
    outcome: CallOutcome
    milliseconds: float
    native: bool


class Recording:
    """Hands events to a recorder; `arguments` says whether those of calls are recorded."""

    def __init__(self, record: RecordEvent, *, arguments: bool = False) -> None:
        self._record = record
        self.arguments = arguments
        self._met: OrderedDict[tuple[WorkspaceKey, Variant], None] = OrderedDict()

    def meets(self, caller: Caller, variant: Variant) -> bool:
        """Return whether this caller's session is new, served like this; true only once."""
        key = activity_key(caller), variant
        if key in self._met or self._record is record_nothing:
            return False
        self._met[key] = None
        if len(self._met) > REMEMBERED_SESSIONS:
            self._met.popitem(last=False)
        return True

    def opened(self, caller: Caller, mode: Mode, tools: int, instructions: str) -> None:
        tokens = Later(lambda: estimate_tokens(instructions))
        self._record(SessionOpened(**_act(caller), mode=mode, tools=tools, tokens=tokens))

    def listed(
        self,
        caller: Caller,
        tokens: Callable[[Iterable[ToolId] | None], int],
        menu: Sequence[Answer],
        bound: Iterable[ToolId],
        reach: ScopedCatalog,
    ) -> None:
        ids = tuple(bound)
        self._record(
            ToolsListed(
                **_act(caller),
                tools=len(menu) + len(ids),
                tokens=Later(lambda: sum(estimate_tokens(compact_json(t)) for t in menu) + tokens(ids)),
                upfront=Later(lambda: tokens(None if reach.is_whole else reach)),
            )
        )

    def searched(self, caller: Caller, request: SearchRequest, results: Sequence[SearchResult], answer: Answer) -> None:
        tokens = Later(lambda: answer_tokens(answer))
        for part, result in enumerate(results):
            self._record(
                Searched(
                    **_act(caller),
                    query=result.query.text,
                    hits=tuple(map(_found, result.hits)),
                    confidence=result.confidence.level,
                    probability=result.confidence.probability,
                    tokens=0 if part else tokens,
                    limit=request.limit,
                    offset=request.offset,
                    mode=request.mode,
                    filters=_asked(request),
                    steps={step.name: step.milliseconds for step in result.steps},
                    part=part,
                )
            )

    def selected(self, caller: Caller, request: SelectRequest, selection: Selection, answer: Answer) -> None:
        """Record a selection as the search that it replaces; a language model gives no probability."""
        hits = tuple(FoundTool(tool=tool.id, rank=rank, score=0.0) for rank, tool in enumerate(selection.tools, 1))
        self._record(
            Searched(
                **_act(caller),
                query=request.request,
                hits=hits,
                confidence="medium" if hits else "none",
                probability=0.0,
                tokens=Later(lambda: answer_tokens(answer)),
                limit=request.limit,
                offset=0,
                filters={},
                part=0,
                mode=f"select:{selection.by}",
                steps={"select": selection.milliseconds},
            )
        )

    def suggested(self, caller: Caller, toolsets: Iterable[str]) -> None:
        for toolset in toolsets:
            self._record(SuggestionGiven(**_act(caller), toolset=toolset))

    def circle_broken(self, caller: Caller, query: str, answer: Answer) -> None:
        self._record(CircleBroken(**_act(caller), query=query, tokens=Later(lambda: answer_tokens(answer))))

    def described(self, caller: Caller, tools: Iterable[ToolId], answer: Answer) -> None:
        self._record(Described(**_act(caller), tools=tuple(tools), tokens=Later(lambda: answer_tokens(answer))))

    def called(self, caller: Caller, call: Finished, result: Answer | None) -> None:
        """Record a call that was sent, and its result."""
        self._record(
            Called(
                caller=caller.name,
                workspace=activity_key(caller),
                tool=call.tool,
                outcome=call.outcome,
                milliseconds=call.milliseconds,
                native=call.native,
                size=_size(result) if result else 0,
                arguments=call.arguments if self.arguments else None,
            )
        )

    def refused(
        self, caller: Caller, tool: ToolId, outcome: CallOutcome, arguments: Mapping[str, Json], said: str
    ) -> None:
        """Record a call that was never sent, and what the reason cost in tokens."""
        self._record(
            Called(
                caller=caller.name,
                workspace=activity_key(caller),
                tool=tool,
                outcome=outcome,
                milliseconds=0.0,
                native=False,
                tokens=Later(lambda: estimate_tokens(said)),
                arguments=arguments if self.arguments else None,
            )
        )

    def toolsets_listed(self, caller: Caller, answer: Answer) -> None:
        self._record(ToolsetsListed(**_act(caller), tokens=Later(lambda: answer_tokens(answer))))

    def loaded(
        self, caller: Caller, toolset: str, tools: tuple[ToolId, ...], milliseconds: float, answer: Answer
    ) -> None:
        tokens = Later(lambda: answer_tokens(answer))
        self._record(
            ToolsLoaded(**_act(caller), toolset=toolset, tools=tools, milliseconds=milliseconds, tokens=tokens)
        )

    def unloaded(self, caller: Caller, toolset: str, tools: tuple[ToolId, ...]) -> None:
        self._record(ToolsUnloaded(**_act(caller), toolset=toolset, tools=tools))

    def task_reported(self, caller: Caller, completed: bool, task: str) -> None:
        self._record(TaskReported(**_act(caller), completed=completed, task=task))

    def upstream_changed(self, server: str, state: str) -> None:
        """Record that a server came up or went down; neither a first attempt nor the gateway's own end counts."""
        if state not in ("connecting", "stopped"):
            self._record(UpstreamChanged(server=server, up=state == "ready", state=state))

    def catalog_changed(self, server: str, tools: int, view: ServedView) -> None:
        self._record(
            CatalogChanged(
                server=server,
                tools=tools,
                fingerprint=view.catalog.fingerprint,
                upfront=Later(lambda: view.tokens(None)),
            )
        )


def _act(caller: Caller) -> dict[str, str]:
    return {"caller": caller.name, "workspace": activity_key(caller)}


def _found(hit: Hit) -> FoundTool:
    return FoundTool(tool=hit.tool.id, rank=hit.rank, score=hit.score, signals=hit.signals, family=hit.family)


def _asked(request: SearchRequest) -> dict[str, Json]:
    """Return the limits that the caller set itself."""
    asked = {
        "servers": request.servers and sorted(request.servers),
        "toolsets": request.toolsets and sorted(request.toolsets),
        "category": request.category,
        "intent": request.intent,
        "read_only": request.read_only,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _size(result: Answer) -> int:
    """Count the characters of a result's texts, images and other blocks."""
    blocks = [block for block in result.get("content") or () if isinstance(block, dict)]
    return sum(len(part) for block in blocks for key in ("text", "data") if isinstance(part := block.get(key), str))
