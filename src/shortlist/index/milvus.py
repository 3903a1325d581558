"""Milvus as the engine that finds candidates, for those who share one index among machines.

A collection holds one index: a row is a tool, with the weights of its words as a sparse vector, its vector, and what
filters ask for, as numbers. Stored weights do not depend on other tools, and IDF is a factor of the query, so the inner
product that the engine returns is the BM25F score of this package. Rows and term numbers are those of the index. That
is why the name of a collection is a hash of them, and why it is never changed: what came later is searched in this
process until the next collection is published.

The same client opens a local file (`milvus-lite`) and the address of a server.
"""

import hashlib
import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from shortlist.errors import InvalidInput, ModelError
from shortlist.index.embedders import Vectors
from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex, StandIns
from shortlist.index.nearest import ApproximateVectorIndex, Moments
from shortlist.index.ports import NOTHING, Among, Candidates, Rows
from shortlist.index.vectors import ExactVectorIndex, best
from shortlist.models import Filters, Scores
from shortlist.text.queries import QueryTerm

logger = logging.getLogger(__name__)

INSERTED_AT_ONCE = 2_000
MAX_LIMIT = 16_384
"""The most rows that Milvus returns for one search."""
SPARE_SHARE = 0.125
"""The engine compares a query's vector as it is, this package rounded: near the cut their orders differ a little."""
ANSWER_SECONDS, PUBLISH_SECONDS = 5.0, 120.0
"""How long a search may take, and one step of publishing."""
COOL_DOWN_SECONDS = 15.0
"""How long an engine that failed is not asked, so that not every search waits for it."""
SCHEMA = 2
_ROW, _WORDS, _VECTOR = "row", "words", "vector"


class Collection:
    """One index in Milvus: opened where the engine has it, published where it does not."""

    def __init__(self, client: Any, name: str, size: int) -> None:
        self._client, self._name, self._size = client, name, size
        self._away_until = 0.0

    @classmethod
    def open(cls, uri: str, index: Index, token: str = "") -> "Collection":
        """Return the collection of an index, which is published first where the engine does not have it."""
        if index.dense is None or index.size != len(index):
            raise InvalidInput("Only an index with vectors and without removed rows is published: compact it before.")
        collection = cls(_connected(uri, token), collection_name(index, index.dense), index.size)
        collection._ask(collection._publish, index, index.dense)
        return collection

    def near(self, query: Vectors, limit: int, among: Among) -> Rows:
        """Return rows that may answer, the nearest to any vector of the query; all of them where the engine is away."""
        if time.monotonic() < self._away_until:
            return self._passing(among)
        try:
            more = limit + int(limit * SPARE_SHARE)
            return self._rows(_VECTOR, query.astype(np.float32).tolist(), more, among)
        except ModelError as error:  # the search goes on with every vector, in this process
            logger.warning("Searching every vector in this process: %s", error)
            self._away_until = time.monotonic() + COOL_DOWN_SECONDS
            return self._passing(among)

    def holding(self, weights: Mapping[int, float], limit: int, among: Among) -> Rows:
        """Return rows that may answer, those with the largest inner product with the weights of a query's terms."""
        return self._rows(_WORDS, [dict(weights)], limit, among)

    def close(self) -> None:
        self._client.close()

    def _rows(self, field: str, vectors: list[Any], limit: int, among: Among) -> Rows:
        """Return the rows that may answer and are nearest to any of the vectors, ascending.

        Ask for more until enough pass: the engine applies filters, but knows neither scopes nor removed rows. Where
        even the most that it returns are not enough, return all rows that may answer: the cut comes after.
        """
        wanted = limit
        while True:
            asked = min(wanted, MAX_LIMIT)
            answers = self._ask(
                self._client.search,
                self._name,
                data=vectors,
                anns_field=field,
                limit=asked,
                filter=expression(among.filters),
                search_params={"metric_type": "IP"},
                timeout=ANSWER_SECONDS,
            )
            found = [np.array([hit[_ROW] for hit in answer], np.int64) for answer in answers]
            passing = [rows if among.rows is None else rows[among.rows[rows]] for rows in found]
            if all(len(p) >= limit or len(rows) < asked for rows, p in zip(found, passing, strict=True)):
                return np.unique(np.concatenate(passing))
            if asked == MAX_LIMIT:
                return self._passing(among)
            wanted *= 4

    def _passing(self, among: Among) -> Rows:
        """Return every row of the collection that may answer."""
        every = np.arange(self._size)
        return every if among.rows is None else every[among.rows[: self._size]]

    def _publish(self, index: Index, dense: ExactVectorIndex) -> None:
        """Fill a collection under a name of its own and rename it, so that nobody opens half of it."""
        if self._has_all_rows():
            return
        mine = f"{self._name}_{secrets.token_hex(4)}"
        self._create(mine, dense.dimensions)
        for start in range(0, index.size, INSERTED_AT_ONCE):
            rows = range(start, min(start + INSERTED_AT_ONCE, index.size))
            self._client.insert(mine, list(_entities(index, dense, rows)), timeout=PUBLISH_SECONDS)
        self._client.flush(mine, timeout=PUBLISH_SECONDS)
        if self._client.has_collection(self._name):  # another process was faster
            self._client.drop_collection(mine)
        else:
            self._client.rename_collection(mine, self._name)
        self._client.load_collection(self._name)

    def _has_all_rows(self) -> bool:
        """Return whether the collection is there; one that has lost rows is dropped."""
        if not self._client.has_collection(self._name, timeout=ANSWER_SECONDS):
            return False
        self._client.load_collection(self._name)  # an engine that was restarted has it on disk alone
        count = self._client.query(self._name, filter="", output_fields=["count(*)"])[0]["count(*)"]
        if count != self._size:
            self._client.drop_collection(self._name)
        return bool(count == self._size)

    def _create(self, name: str, dimensions: int) -> None:
        from pymilvus import DataType  # noqa: PLC0415

        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(_ROW, DataType.INT64, is_primary=True)
        schema.add_field(_WORDS, DataType.SPARSE_FLOAT_VECTOR)
        schema.add_field(_VECTOR, DataType.FLOAT_VECTOR, dim=dimensions)
        for field in ("server", "category"):
            schema.add_field(field, DataType.INT64)
        for field in ("read_only", "destructive"):
            schema.add_field(field, DataType.INT8)
        indexes = self._client.prepare_index_params()
        indexes.add_index(_WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
        indexes.add_index(_VECTOR, index_type="FLAT", metric_type="IP")
        self._client.create_collection(name, schema=schema, index_params=indexes, consistency_level="Strong")

    def _ask(self, work: Any, *arguments: Any, **named: Any) -> Any:
        """Call the engine; a failure names what to do."""
        try:
            return work(*arguments, **named)
        except _failures() as error:
            raise ModelError(
                f"Milvus did not answer ({_reason(error)}). Check the address in search.index, or set it to 'exact'."
            ) from None


def collection_name(index: Index, dense: ExactVectorIndex) -> str:
    """Return a name that differs where the content, the vectors, or the numbers of rows and terms do."""
    digest = hashlib.blake2b(f"{SCHEMA} {dense.model_id} {index.catalog.fingerprint}".encode(), digest_size=16)
    digest.update(dense.rows_without_vector().tobytes() + b"\0")
    for text in chain(index.ids, index.lexical.vocabulary):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return f"shortlist_{digest.hexdigest()}"


def expression(filters: Filters) -> str:
    """Return the filters that the engine can apply as a Milvus expression; tags and single tools are left to us."""
    parts = [
        f"{field} in {sorted(map(_number_of, wanted))}"
        for field, wanted in (("server", filters.servers), ("category", filters.categories))
        if wanted is not None
    ]
    claims = (("read_only", filters.read_only), ("destructive", filters.destructive))
    return " and ".join([*parts, *(f"{field} == {int(claim)}" for field, claim in claims if claim is not None)])


def _entities(index: Index, dense: ExactVectorIndex, rows: range) -> Iterator[dict[str, Any]]:
    vectors = dense.vectors(np.array(rows)).astype(np.float32)
    for row, vector in zip(rows, vectors, strict=True):
        tool, (terms, weights) = index.tool(row), index.lexical.weights_of(row)
        claims = (tool.annotations.read_only, tool.annotations.destructive)
        yield {
            _ROW: row,
            _WORDS: dict(zip(terms.tolist(), weights.tolist(), strict=True)) or {0: 0.0},
            _VECTOR: vector.tolist(),
            "server": _number_of(tool.server),
            "category": _number_of(tool.category),
            "read_only": -1 if claims[0] is None else int(claims[0]),
            "destructive": -1 if claims[1] is None else int(claims[1]),
        }


def _number_of(label: str) -> int:
    """Return a number for the name of a server or category: no text of a catalog is part of an expression."""
    digest = hashlib.blake2b(label.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _connected(uri: str, token: str) -> Any:
    try:
        from pymilvus import MilvusClient  # noqa: PLC0415
    except ImportError:
        raise InvalidInput(
            "Search by Milvus needs the extra 'milvus': run pip install 'shortlist-mcp[milvus]', "
            "or set search.index to 'exact'."
        ) from None
    # The client prints a traceback for every failure; each is raised to us too, and reported in one line.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    try:
        return MilvusClient(uri, token=token, timeout=ANSWER_SECONDS)
    except _failures() as error:
        raise ModelError(
            f"Milvus at {uri!r} cannot be opened ({_reason(error)}). Check the address in search.index."
        ) from None


def _failures() -> tuple[type[Exception], ...]:
    """Return what the client raises where an engine fails; the transport raises ValueError once it is closed."""
    from grpc import FutureTimeoutError, RpcError  # noqa: PLC0415
    from pymilvus.exceptions import MilvusException  # noqa: PLC0415

    return MilvusException, RpcError, FutureTimeoutError, OSError, ValueError


def _reason(error: Exception) -> str:
    return str(getattr(error, "message", "") or error or type(error).__name__)


class AskedTerms(NamedTuple):
    """For each term of a query, the numbers of what may stand for it, with their weights times IDF."""

    terms: Sequence[Mapping[int, float]]


class MilvusLexicalIndex:
    """Words by the engine, scores by this package: a word with synonyms counts once, by the best match."""

    def __init__(self, collection: Collection, exact: ExactLexicalIndex) -> None:
        self._collection, self._exact = collection, exact

    def match(self, terms: Sequence[QueryTerm], stand_ins: StandIns) -> AskedTerms:
        number, idf = self._exact.vocabulary, self._exact.idf
        return AskedTerms([{number[t]: w * idf(t) for t, w in stand_ins(asked)} for asked in terms])

    def retrieve(self, query: AskedTerms, limit: int, among: Among) -> Candidates:
        summed: dict[int, float] = {}
        for term in query.terms:
            for number, weight in term.items():
                summed[number] = summed.get(number, 0.0) + weight
        if not summed:
            return NOTHING
        # The sum is never below the best of synonyms, so more rows are asked for where a term has some.
        deeper = limit if all(len(term) < 2 for term in query.terms) else 4 * limit
        rows = self._collection.holding(summed, deeper, among)
        scores = self.score(query, rows)
        chosen = best(scores, limit)
        return Candidates(rows[chosen], scores[chosen], len(rows))

    def score(self, query: AskedTerms, rows: Rows) -> Scores:
        return np.array([self._score(query, int(row)) for row in rows], np.float32)

    def _score(self, query: AskedTerms, row: int) -> float:
        terms, weights = self._exact.weights_of(row)
        known = dict(zip(terms.tolist(), weights.tolist(), strict=True))
        return sum(max((known.get(n, 0.0) * w for n, w in term.items()), default=0.0) for term in query.terms)


def by_milvus(index: Index, collection: Collection) -> ApproximateVectorIndex:
    """Return the vectors of an index, of which the engine finds the nearest."""
    if index.dense is None:
        raise InvalidInput("An index without vectors cannot be searched by them: embed it before.")
    return ApproximateVectorIndex(index.dense, collection, moments=Moments.of(index.dense))
