"""Fit the token estimator, and print its error against exact o200k counts.

    python benchmarks/tokens.py ranks            # unpack the exact ranks from npm's js-tiktoken
    python benchmarks/tokens.py fit              # write src/shortlist/disclosure/costs.json
    python benchmarks/tokens.py measure          # error on catalogs that were not fitted on; cost of the menus

Exact counts need `tiktoken`, a development dependency, and its ranks; nothing at run time does.
"""

import argparse
import base64
import gzip
import hashlib
import json
import os
import random
import re
import statistics
import subprocess
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from shortlist.disclosure.budget import PIECE, estimate_tokens, kind_of
from shortlist.gateway.menus import menu_definitions

HERE = Path(__file__).parent
RANKS = HERE / ".cache" / "o200k"
RANKS_KEY = hashlib.sha1(  # the name under which tiktoken looks for its ranks
    b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
).hexdigest()
COSTS = HERE.parent / "src" / "shortlist" / "disclosure" / "costs.json"
KNOWN_PIECES = 400
TOOLS_PER_CATALOG = 400
SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["ranks", "fit", "measure"])
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.step == "ranks":
        unpack_ranks()
    elif args.step == "fit":
        fit(args.data)
    else:
        measure(args.data, args.out)


def unpack_ranks() -> None:
    """Turn the ranks that npm's js-tiktoken carries into the file tiktoken expects; the hash is tiktoken's own."""
    RANKS.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "pack", "--silent", "js-tiktoken@1.0.21"], cwd=RANKS, check=True, capture_output=True)
    with tarfile.open(next(RANKS.glob("js-tiktoken-*.tgz"))) as archive:
        member = archive.extractfile("package/dist/ranks/o200k_base.js")
        assert member is not None
        source = member.read().decode()
    packed = re.search(r'bpe_ranks"?:\s*"(.*?)"[,}]', source)
    assert packed is not None
    ranks: dict[bytes, int] = {}
    for line in packed.group(1).encode().decode("unicode_escape").splitlines():
        _, offset, *tokens = line.split(" ")
        ranks.update({base64.b64decode(token): int(offset) + i for i, token in enumerate(tokens)})
    rows = (base64.b64encode(t) + b" " + str(r).encode() + b"\n" for t, r in sorted(ranks.items(), key=lambda x: x[1]))
    (RANKS / RANKS_KEY).write_bytes(b"".join(rows))


@cache
def exact() -> Callable[[str], int]:
    """Return the exact counter; tiktoken checks the ranks against its own hash."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(RANKS)
    import tiktoken

    encoding = tiktoken.get_encoding("o200k_base")
    return cache(lambda text: len(encoding.encode_ordinary(text)))


def fit(data: Path) -> None:
    count = exact()
    texts = [text for path in sorted(data.glob("catalogs/*/tools.jsonl.gz")) for text in texts_of(path)]
    pieces = Counter(m.group() for text in texts for m in PIECE.finditer(text))
    kinds = mean_costs(pieces, set())
    gains = {
        piece: seen**0.75 * abs(count(piece) - cost_by_kind(piece, kinds))
        for piece, seen in pieces.items()
        if len(piece) > 1
    }
    known = sorted(sorted(gains, key=lambda p: (-gains[p], p))[:KNOWN_PIECES])
    table = {
        "kinds": {kind: round(cost, 3) for kind, cost in sorted(mean_costs(pieces, set(known)).items())},
        "pieces": {piece: count(piece) for piece in known},
    }
    COSTS.write_text(json.dumps(table, ensure_ascii=False, indent=0) + "\n", "utf-8")


def mean_costs(pieces: Counter[str], known: set[str]) -> dict[str, float]:
    tokens: dict[str, float] = defaultdict(float)
    units: Counter[str] = Counter()
    for piece, seen in pieces.items():
        match = PIECE.match(piece)
        if piece in known or match is None:
            continue
        kind, size = kind_of(match)
        tokens[kind] += exact()(piece) * seen
        units[kind] += size * seen
    return {kind: tokens[kind] / units[kind] for kind in units}


def cost_by_kind(piece: str, kinds: dict[str, float]) -> float:
    match = PIECE.match(piece)
    assert match is not None
    kind, size = kind_of(match)
    return kinds[kind] * size


def measure(data: Path, out: Path | None) -> None:
    count = exact()
    errors: dict[str, list[float]] = defaultdict(list)
    for path in sorted(data.glob("eval/*/tools.jsonl.gz")):
        for text in texts_of(path, tools=120):
            true = count(text)
            error = abs(estimate_tokens(text) - true) / true
            errors["all"].append(error)
            errors[bucket(true)].append(error)
    report = {name: round(statistics.fmean(found), 4) for name, found in sorted(errors.items())}
    menus = {name: count(json.dumps(menu_definitions(name))) for name in ("search", "minimal", "dynamic")}
    print(f"mean relative error over {len(errors['all'])} texts: {report}")
    print(f"exact tokens of the menus: {menus}")
    if out:
        out.write_text(json.dumps({"error": report, "menus": menus}, indent=2) + "\n")


def bucket(tokens: int) -> str:
    bounds = (30, 60, 120, 400)
    return next((f"under {bound} tokens" for bound in bounds if tokens < bound), "longer")


def texts_of(path: Path, tools: int = TOOLS_PER_CATALOG) -> Iterator[str]:
    """Return a catalog's tools in the shapes that a model is shown: prose, definition, schema, signature."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(SEED).shuffle(rows)
    for row in rows[:tools]:
        yield from (text for text in shapes(row) if len(text) >= 40)


def shapes(row: dict[str, Any]) -> Iterator[str]:
    description = str(row.get("description") or "")
    schema = row.get("input_schema") or {}
    yield description
    yield json.dumps({"name": row["name"], "description": description, "inputSchema": schema}, separators=(",", ":"))
    yield json.dumps(schema, indent=2)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = ", ".join(f"{name}?: string" for name in properties or {})
    yield f"{row.get('server')}__{row['name']}({names})\n  {description[:100]}"


if __name__ == "__main__":
    main()
