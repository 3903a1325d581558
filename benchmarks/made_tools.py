"""Tools for catalogs larger than the real one, made from it with a seed: python -m benchmarks.made_tools.

The 25,759 real tools of the benchmark come first. Each further server is made of two real ones: it has the tools of
the *pattern* (their names, sentences and schemas), in which every telling word, one that fewer than 1 % of the real
tools use, is replaced by a telling word of the *donor*, the same one throughout the server. So its tools read like
real ones about other things, common words stay as common as they are, and each server adds invented words of its own
(the name of its product and two of its terms), so that the vocabulary grows with the catalog.

Embedding a million texts takes hours on a laptop, so the vector of a made tool is derived: a mixture of the vectors of
the pattern's tool, of the donor's tools and of a few other real tools. The command embeds a sample of made tools with
the shipped model and prints how the derived vectors compare with those.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from benchmarks.measuring import bench_file, publish
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder, Vectors, shipped
from shortlist.index.embedding import embed_cached
from shortlist.models import Tool
from shortlist.storage.local import local_vectors
from shortlist.text.documents import embedding_text

SEED = 19
TELLING_SHARE = 0.01
"""A word that a larger share of the real tools uses (`list`, `string`, `returns`) stays as it is."""
INVENTED = 3
"""How many invented words a server adds to the vocabulary."""
PATTERN, DONOR = (0.15, 0.78), 0.17
"""The cosines of a derived vector with its pattern, drawn from this range, and with the mean of the donor's tools:
those that the embedded vectors of made tools were found to have."""
MIXED = 4
"""The rest of a derived vector is the mean of so many real tools, so that it lies where real vectors lie."""
_WORD = re.compile(r"(?<!\\)[A-Za-z][a-z]{3,}")  # not the letter of an escape in JSON
_JSON = frozenset({"true", "false", "null"})
_SYLLABLES = [
    a + b for a in ("b", "br", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z") for b in "aeiou"
]


@dataclass(frozen=True, slots=True)
class MadeServer:
    """One made server: whose tools it imitates, about what, and where its vectors come from."""

    name: str
    pattern: str
    donor: str
    words: dict[str, str]


class Maker:
    """Makes any number of tools out of the real ones; the same seed makes the same tools."""

    def __init__(self, real: Catalog, seed: int = SEED) -> None:
        self.real = real
        self._seed = seed
        self._names = sorted(real.members)
        counts = Counter(word for tool in real.tools.values() for word in set(_words(tool)))
        usual = TELLING_SHARE * len(real)
        self._telling = {
            name: sorted({w for t in real.of_server(name) for w in _words(t) if counts[w] < usual and w not in _JSON})
            for name in self._names
        }

    def servers(self) -> Iterator[MadeServer]:
        """Yield servers without end."""
        draw, number = Random(self._seed), 0
        while True:
            pattern, donor = draw.choice(self._names), draw.choice(self._names)
            invented = ["".join(draw.choices(_SYLLABLES, k=draw.randint(2, 4))) for _ in range(INVENTED)]
            offered = [*self._telling[donor], *invented[1:]]
            words = {word: draw.choice(offered) for word in self._telling[pattern]}
            yield MadeServer(f"{invented[0]}-{number}", pattern, donor, words)
            number += 1

    def tools(self, count: int) -> Iterator[tuple[Tool, str, str]]:
        """Yield made tools, each with the real tool that it imitates and the server that it is about."""
        made = 0
        for server in self.servers():
            for tool in self.real.of_server(server.pattern):
                if made == count:
                    return
                made += 1
                yield _made(tool, server), tool.id, server.donor

    @cached_property
    def _places(self) -> dict[str, int]:
        return {tool_id: place for place, tool_id in enumerate(self.real.tools)}

    def vectors(self, sources: Sequence[tuple[str, str]], real: Vectors, seed: int = SEED) -> Vectors:
        """Derive the vectors of made tools from those of the real ones, which are in the order of the catalog."""
        means = {name: real[[self._places[i] for i in self.real.members[name]]].mean(axis=0) for name in self._names}
        pattern = real[[self._places[tool_id] for tool_id, _ in sources]]
        donor = _unit(np.stack([means[name] for _, name in sources]))
        draw = np.random.default_rng(seed)
        rest = _unit(real[draw.integers(len(real), size=(len(sources), MIXED))].mean(axis=1))
        share = draw.uniform(*PATTERN, size=(len(sources), 1)).astype(np.float32)
        return _unit(share * pattern + DONOR * donor + np.sqrt(1 - share**2 - DONOR**2) * rest)


def real_catalog() -> Catalog:
    """Return the real tools of the benchmark."""
    return read_catalog(bench_file("eval", "mcp_union", "tools.jsonl.gz")).catalog


def real_vectors(catalog: Catalog, model: Embedder, most: int | None = None) -> Vectors:
    """Return the model's vectors of the real tools, or of the first of them.

    They are embedded once and kept with the vectors that all programs of this user share.
    """
    texts = [embedding_text(tool) for tool in list(catalog.tools.values())[:most]]
    return embed_cached(model, texts, StoredVectors(local_vectors()), _embedded)


def grown_catalog(maker: Maker, size: int) -> tuple[Catalog, dict[str, tuple[str, str]]]:
    """Return the real tools and enough made ones, and what each made tool was made of."""
    tools, sources = list(maker.real.tools.values())[:size], dict[str, tuple[str, str]]()
    for tool, pattern, donor in maker.tools(size - len(tools)):
        tools.append(tool)
        sources[tool.id] = pattern, donor
    return Catalog.of(tools, [*maker.real.servers.values()]), sources


def _made(tool: Tool, server: MadeServer) -> Tool:
    def other(found: re.Match[str]) -> str:
        word = found[0]
        new = server.words.get(word.lower())
        return word if new is None else new.capitalize() if word[0].isupper() else new

    name, description, definition = (_WORD.sub(other, text) for text in (tool.name, tool.description, tool.definition))
    return Tool(
        id=f"{server.name}/{tool.id}",
        name=name,
        server=server.name,
        description=description,
        annotations=tool.annotations,
        definition=definition,
        content_hash=f"made {server.name}/{tool.id}",
    )


def _embedded(done: int, total: int) -> None:
    if done == total or not done % 1_000:
        print(f"{done:,} of {total:,} real tools embedded", file=sys.stderr, flush=True)


def _words(tool: Tool) -> list[str]:
    return [word.lower() for word in _WORD.findall(f"{tool.name} {tool.description} {tool.definition}")]


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return unit.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=400, help="how many made tools to embed")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    model, catalog = shipped("small"), real_catalog()
    assert model is not None
    maker, real = Maker(catalog, options.seed), real_vectors(catalog, model)
    made = list(maker.tools(40 * options.sample))[::40]
    sources = [(pattern, donor) for _, pattern, donor in made]
    derived = maker.vectors(sources, real)
    embedded = model.embed_documents([embedding_text(tool) for tool, _, _ in made])
    patterns = real[[list(catalog.tools).index(pattern) for pattern, _ in sources]]
    nearest = {name: (vectors @ real.T).max(axis=1) for name, vectors in (("embedded", embedded), ("derived", derived))}
    lines = (
        ("derived and embedded vector of the same made tool", *_spread((derived * embedded).sum(axis=1))),
        ("derived vectors of two made tools", *_spread(_pairs(derived))),
        ("embedded vectors of two made tools", *_spread(_pairs(embedded))),
        ("embedded vectors of two real tools", *_spread(_pairs(real[:: len(real) // options.sample]))),
        ("derived vector and its pattern", *_spread((derived * patterns).sum(axis=1))),
        ("embedded vector and its pattern", *_spread((embedded * patterns).sum(axis=1))),
        ("derived vector and the nearest real tool", *_spread(nearest["derived"])),
        ("embedded vector and the nearest real tool", *_spread(nearest["embedded"])),
    )
    for tool, pattern, _ in made[:3]:
        print(f"{pattern}\n  {catalog.tools[pattern].description[:150]!r}\n  {tool.name}: {tool.description[:150]!r}")
    table = Table(f"Cosines of {len(made)} made tools", ("between", "p10", "median", "p90"), lines)
    publish("made-tools", [table], {"seed": options.seed, "lines": lines})


def _pairs(vectors: Vectors) -> NDArray[np.float32]:
    half = len(vectors) // 2
    found: NDArray[np.float32] = (vectors[:half] * vectors[half : 2 * half]).sum(axis=1)
    return found


def _spread(values: NDArray[np.float32]) -> tuple[str, str, str]:
    p10, p50, p90 = np.percentile(values, (10, 50, 90))
    return f"{p10:.2f}", f"{p50:.2f}", f"{p90:.2f}"


if __name__ == "__main__":
    main()
