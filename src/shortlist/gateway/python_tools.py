"""The tools in a caller's reach as programs name them, and as search and describe show them there."""

from weakref import WeakKeyDictionary

from shortlist.access.catalog import ScopedCatalog
from shortlist.code.naming import PythonNames
from shortlist.code.stubs import python_description, python_signature
from shortlist.disclosure.render import COMPACT_DESCRIPTION, Entry
from shortlist.errors import InvalidInput
from shortlist.gateway.state import CallerView
from shortlist.models import Hit, Tool
from shortlist.text.tokens import one_line


class PythonTools:
    """The functions of one scoped catalog. A name outside the scope is as unknown as one that does not exist."""

    def __init__(self, tools: ScopedCatalog) -> None:
        self._tools = tools
        self._names = PythonNames(tools)

    def find(self, path: str) -> Tool | None:
        """Return the tool that programs call `tools.<path>`."""
        tool_id = self._names.find(path)
        return self._tools[tool_id] if tool_id is not None and tool_id in self._tools else None

    def path(self, tool: Tool) -> str:
        return self._names.path(tool.id)

    def signature(self, tool: Tool) -> str:
        return python_signature(tool, self.path(tool))

    def described(self, tool: Tool) -> str:
        return python_description(tool, self.path(tool))

    def entry(self, hit: Hit) -> Entry:
        """Return a hit as a signature and one line of words."""
        tool = hit.tool
        return Entry(
            name=self.path(tool),
            signature=self.signature(tool),
            description=one_line(tool.description or tool.title, COMPACT_DESCRIPTION),
            score=hit.score,
            family=tuple(self.path(self._tools[member]) for member in hit.family if member != tool.id),
        )


_made: WeakKeyDictionary[ScopedCatalog, PythonTools] = WeakKeyDictionary()


def python_tools(seen: CallerView) -> PythonTools:
    """Return the functions in a caller's reach; raise InvalidInput where programs are not offered."""
    if seen.menu != "code":
        raise InvalidInput("'detail' can be 'python' only where programs are offered: start the gateway with --code.")
    return functions_of(seen.tools)


def functions_of(tools: ScopedCatalog) -> PythonTools:
    """Return the functions of a scoped catalog, named once."""
    if tools not in _made:
        _made[tools] = PythonTools(tools)
    return _made[tools]
