"""How well untidy requests are understood: python -m benchmarks.understanding [--only NAME …].

Development data, written for this purpose and never fitted on. Beside each figure stands the one for the same things
asked for in a clean English sentence, where such a sentence exists.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

from benchmarks.measuring import publish
from benchmarks.understanding import chats, further, hints, languages, pastes, real_servers, typos, unseen, wishes
from benchmarks.understanding.row import Row, Setup, as_data, table

from shortlist import ToolFilter
from shortlist.evals.datasets import demo_catalog

PARTS: Mapping[str, Callable[[Setup], Sequence[Row]]] = {
    "languages": languages.rows,
    "typos": typos.rows,
    "pastes": pastes.rows,
    "chats": chats.rows,
    "further": further.rows,
    "unseen": unseen.rows,
    "wishes": wishes.rows,
    "hints": hints.rows,
    "real-servers": real_servers.rows,
}


def main() -> None:
    options = _options()
    setup = Setup(options.embedding, ToolFilter(demo_catalog(), embedding=options.embedding))
    rows = [row for name in options.only for row in PARTS[name](setup)]
    publish("understanding", [table(rows)], {"embedding": options.embedding, "rows": as_data(rows)})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", default=list(PARTS), choices=list(PARTS), metavar="NAME", help=f"{', '.join(PARTS)}"
    )
    parser.add_argument("--embedding", default="small")
    return parser.parse_args()


if __name__ == "__main__":
    main()
