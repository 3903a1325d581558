"""Two to four wishes in one request."""

from benchmarks.understanding.cases import outcome, read, wishes_of
from benchmarks.understanding.row import Row, Setup


def rows(setup: Setup) -> list[Row]:
    found = [outcome(setup.demo.filter(case["text"], limit=10), wishes_of(case)) for case in read("wishes")]
    values = [each.hit(2 * len(each.wishes)) for each in found]
    return [Row(request="two to four wishes", metric="every wish within 2 × wishes hits", values=values, asked=80)]
