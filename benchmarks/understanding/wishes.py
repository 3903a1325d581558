"""Two to four wishes in one request, over the demo catalog and over real servers."""

from benchmarks.understanding.cases import outcome, read, wishes_of
from benchmarks.understanding.real_servers import servers
from benchmarks.understanding.row import Row, Setup

from shortlist import ToolFilter


def rows(setup: Setup) -> list[Row]:
    real = ToolFilter(servers(), embedding=setup.embedding)
    return [
        _row("two to four wishes", "wishes", setup.demo),
        _row("two to four wishes, real servers", "real_wishes", real),
    ]


def _row(request: str, name: str, source: ToolFilter) -> Row:
    found = [outcome(source.filter(case["text"], limit=10), wishes_of(case)) for case in read(name)]
    values = [each.hit(2 * len(each.wishes)) for each in found]
    return Row(request=request, metric="every wish within 2 × wishes hits", values=values, asked=80)
