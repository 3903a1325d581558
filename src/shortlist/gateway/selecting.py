"""smart_select_tools: a small language model reads the catalog and picks; where it cannot, search does, and says so."""

from collections.abc import Mapping

import anyio.from_thread
import anyio.to_thread

from shortlist.config.settings import SelectionSettings
from shortlist.disclosure.render import Entry, entry_text, signature_of
from shortlist.errors import InvalidInput
from shortlist.gateway.answers import text_result
from shortlist.gateway.metatools import select_request
from shortlist.gateway.state import State
from shortlist.gateway.workspaces import Caller
from shortlist.models import Json, Query, SearchResult
from shortlist.selection import LanguageModel, Selection, Selector, configured_model
from shortlist.text.clean import one_line

DESCRIPTION = 120


class Selecting:
    """Picks tools for a caller, among those it may see."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._model: tuple[SelectionSettings, LanguageModel | None] | None = None

    async def select(self, caller: Caller, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Answer smart_select_tools, beside the event loop: a model takes its time."""
        request, state = select_request(arguments), self._state

        def search(query: Query) -> SearchResult:
            return anyio.from_thread.run(state.search.search, query)

        selector = Selector(state.snapshot.catalog, search, self._configured())
        visible = state.visible(caller)
        selection = await anyio.to_thread.run_sync(
            selector.select, request.request, request.limit, visible, abandon_on_cancel=True
        )
        answer = text_result(self._words(selection))
        state.recording.selected(caller, request, selection, answer)
        return answer

    def _configured(self) -> LanguageModel | None:
        """Give the model of the configuration as it is now; its connections are kept from call to call."""
        settings = self._state.settings.smart_select
        if settings is None:
            raise InvalidInput("smart_select_tools is not offered here. Use search_tools.")
        if self._model is None or self._model[0] != settings:
            self._model = settings, configured_model(settings)
        return self._model[1]

    def _words(self, selection: Selection) -> str:
        count = len(selection.tools)
        by = f"picked by {selection.model} from {selection.listed}" if selection.by == "model" else "found"
        lines = [f"{count} tool{'' if count == 1 else 's'} {by}{':' if count else '.'}"]
        for tool in selection.tools:
            name = self._state.snapshot.name(tool.id)
            description = one_line(tool.description or tool.title, DESCRIPTION)
            lines.append(entry_text(Entry(name=name, signature=signature_of(tool, name), description=description)))
        if selection.unknown:
            lines.append(f"The model named {selection.unknown} that are not there; they are left out.")
        if not count:
            lines.append("Nothing fits. Rephrase, or use search_tools.")
        return "\n".join([*lines, *([selection.note] if selection.note else [])])
