"""A filter's vectors: made once, forgotten in time, and missed by nobody while a model is slow or broken."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import numpy as np
import pytest

from shortlist.errors import ModelError
from shortlist.index.embedders import Progress, Vectors
from shortlist.index.vectors import COOL_DOWN_SECONDS, QueryVectors
from tests.fakes import WORKPLACE, HashingEmbedder, catalog
from tests.library.support import MERGE, workplace


def test_queries_that_begin_alike_do_not_share_a_vector() -> None:
    made = workplace()
    beginning = "please " * 40
    one, other = made.filter(f"{beginning} merge a pull request"), made.filter(f"{beginning} send an email")
    assert not other.metrics.cache_hit
    assert one.tools[0].id != other.tools[0].id
    chats = [[{"role": "user", "content": "ab"}], [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]]
    assert [made.filter(chat).metrics.cache_hit for chat in chats] == [False, False]


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    made = workplace(cache_capacity=2)
    for text in ("merge", "email", "pods"):
        made.filter(text)
    assert made.stats().cache_size == 2
    assert [made.filter(text).metrics.cache_hit for text in ("pods", "email", "merge")] == [True, True, False]


class Gated(HashingEmbedder):
    """Waits with its answer until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.entered, self.gate = threading.Event(), threading.Event()

    def embed_query(self, text: str) -> Vectors:
        self.asked.append(text)
        self.entered.set()
        self.gate.wait()
        return super().embed_query(text)


def test_identical_queries_in_flight_share_one_embedding() -> None:
    model = Gated()
    vectors = QueryVectors(model)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(vectors.look_up(MERGE).hit)) for _ in range(10)]
    threads[0].start()
    model.entered.wait()
    for thread in threads[1:]:
        thread.start()
    model.gate.set()
    for thread in threads:
        thread.join()
    assert model.asked == [MERGE]
    assert sorted(found) == [False] + [True] * 9


class SlowApart(HashingEmbedder):
    """Waits at the gate with every text but whole queries, of which it knows those it is told."""

    def __init__(self, *whole: str) -> None:
        super().__init__()
        self.whole, self.entered, self.gate = whole, threading.Barrier(3, timeout=30), threading.Event()

    def embed_query(self, text: str) -> Vectors:
        if text not in self.whole:
            self.entered.wait()
            self.gate.wait()
        return super().embed_query(text)


def test_the_parts_of_a_query_are_embedded_side_by_side_and_hold_up_nobody() -> None:
    asked = "Merge the pull request of Ana. Send an email to the whole team."
    model = SlowApart(MERGE, asked)
    filter_ = workplace(embedding=model)
    slow = threading.Thread(target=filter_.filter, args=(asked,))
    slow.start()
    model.entered.wait()  # both parts are at the gate
    assert filter_.filter(MERGE).names()
    model.gate.set()
    slow.join()
    assert filter_.filter(asked).metrics.cache_hit
    assert filter_.stats().cache_size == 4


class Failing(HashingEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def embed_query(self, text: str) -> Vectors:  # noqa: ARG002
        self.asked += 1
        raise ModelError("the model is broken")


def test_a_failed_model_is_left_alone_for_a_while() -> None:
    now = [0.0]
    model = Failing()
    vectors = QueryVectors(model, clock=lambda: now[0])
    for expected in (1, 1):
        with pytest.raises(ModelError, match="broken"):
            vectors.look_up("a")
        assert model.asked == expected
    now[0] = COOL_DOWN_SECONDS + 1
    with pytest.raises(ModelError, match="broken"):
        vectors.look_up("a")
    assert model.asked == 2


def test_a_model_that_fails_mid_turn_is_a_warning_and_the_words_answer() -> None:
    made = workplace(embedding=Failing())
    found = made.filter(MERGE)
    assert found.tools[0].id == "github/merge_pull_request"
    assert found.warnings == ("Using lexical search only: the model is broken",)
    assert made.search(MERGE).notes == ("Using lexical search only: the model is broken",)


def test_threads_may_search_while_the_catalog_changes() -> None:
    made = workplace()
    smaller = {key: text for key, text in WORKPLACE.items() if not key.startswith("github/")}
    wrong: list[str] = []
    stop = threading.Event()

    def search() -> None:
        while not stop.is_set():
            try:
                found = made.filter(MERGE, limit=5, always_include=["github/create_issue"])
                wrong.extend(tool.id for tool in found.tools if tool.id not in WORKPLACE)
            except Exception as error:  # whatever it is, the test should show it
                wrong.append(repr(error))
                return

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_ in range(12):
        made.update(catalog(smaller if round_ % 2 else WORKPLACE))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


class Slow(HashingEmbedder):
    """Embeds documents only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        self.gate.wait()
        return super().embed_documents(texts, progress)


def test_without_waiting_the_words_answer_until_the_vectors_are_there() -> None:
    model = Slow()
    made = workplace(embedding=model, wait=False)
    early = made.filter(MERGE)
    assert early.tools[0].id == "github/merge_pull_request"
    assert any("not ready" in warning for warning in early.warnings)
    model.gate.set()
    made.wait()
    assert made.filter(MERGE).warnings == ()


def test_identical_queries_of_concurrent_tasks_share_one_embedding() -> None:
    model = Gated()
    made = workplace(embedding=model)
    hits: list[bool] = []

    async def ask() -> None:
        hits.append((await made.afilter(MERGE)).metrics.cache_hit)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
            await anyio.to_thread.run_sync(model.entered.wait)
            model.gate.set()

    anyio.run(main)
    assert model.asked == [MERGE]
    assert hits.count(False) == 1


def test_a_vector_forgotten_while_the_model_failed_is_a_note_and_the_words_answer() -> None:
    class Fickle(HashingEmbedder):
        working = True

        def embed_query(self, text: str) -> Vectors:
            if not self.working:
                raise ModelError("the model is broken")
            self.working = False
            return super().embed_query(text)

    made = workplace(embedding=Fickle(), cache_capacity=0)
    found = made.filter(MERGE)
    assert found.tools[0].id == "github/merge_pull_request"
    assert found.warnings == ("Using lexical search only: the model is broken",)


class Own:
    """An embedder as docs/library.md describes it: no progress, plain lists, any length."""

    model_id = "own"
    dimensions = 3

    def __init__(self, value: float = 2.0) -> None:
        self._value = value

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return [[self._value, float(len(text)), 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [self._value, float(len(text)), 1.0]


def test_an_embedder_of_ones_own_works_as_documented() -> None:
    found = workplace(embedding=Own()).filter(MERGE)
    assert found.tools
    assert found.warnings == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_vector_that_is_no_number_is_an_error_that_says_so(value: float) -> None:
    with pytest.raises(ModelError, match="the provider returned NaN or infinity in an embedding"):
        workplace(embedding=Own(value))


class Faulty(HashingEmbedder):
    """Has a fault with queries, or none with `None`."""

    fault: Callable[[], Any] | None = None

    def embed_query(self, text: str) -> Vectors:
        if self.fault is None:
            return super().embed_query(text)
        vector: Vectors = self.fault()
        return vector


def _boom() -> Any:
    raise KeyError("boom")


FAULTS: dict[str, Callable[[], Any]] = {
    "NaN or infinity": lambda: np.full(32, np.nan),
    "shape": lambda: [1.0] * 5,
    "returned None": lambda: None,
    "zero vector": lambda: np.zeros(32),
    "vectors of numbers": lambda: "many",
    "failed with KeyError: 'boom'": _boom,
}


@pytest.mark.parametrize(("said", "fault"), FAULTS.items())
def test_whatever_is_wrong_with_the_vector_of_a_query_is_named_and_the_words_answer(
    said: str, fault: Callable[[], Any]
) -> None:
    model = Faulty()
    made = workplace(embedding=model)
    model.fault = fault
    found = made.filter(MERGE)
    assert found.tools[0].id == "github/merge_pull_request"
    assert found.confidence == workplace(embedding="none").filter(MERGE).confidence
    (warning,) = found.warnings
    assert warning.startswith("Using lexical search only: ")
    assert said in warning
    assert made.explain(MERGE).notes == (warning,)
    made.clear_cache()
    model.fault = None
    assert made.filter(MERGE).warnings == ()


def test_a_wrong_vector_for_one_query_does_not_hold_back_the_next() -> None:
    model = Faulty()
    made = workplace(embedding=model)
    model.fault = FAULTS["zero vector"]
    assert made.filter(MERGE).warnings
    model.fault = None
    assert made.filter("send an email").warnings == ()


def test_what_an_embedder_raises_on_documents_is_an_error_at_the_start() -> None:
    class Broken(HashingEmbedder):
        def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:  # noqa: ARG002
            raise KeyError("boom")

    with pytest.raises(ModelError, match="hashing@1 failed with KeyError: 'boom'"):
        workplace(embedding=Broken())


def test_a_tool_with_a_zero_vector_is_named_and_found_by_its_words() -> None:
    class Blank(HashingEmbedder):
        def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
            merging = [text.startswith("github merge") for text in texts]
            return np.where(np.array(merging)[:, None], np.float32(0), super().embed_documents(texts, progress))

    made = workplace(embedding=Blank())
    found = made.filter(MERGE)
    assert found.tools[0].id == "github/merge_pull_request"
    assert found.warnings == ("The model returned zero vectors for github/merge_pull_request: found by words alone.",)
    assert made.stats().waiting == 0
    assert made.filter(MERGE, servers=["mail"]).warnings == ()
