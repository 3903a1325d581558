import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidInput, ModelError
from shortlist.index import embedders
from shortlist.index.embedders import (
    CHATS_FILE,
    FEW_TEXTS,
    MODEL_FILE,
    WEIGHTS,
    Embedder,
    OnnxEmbedder,
    StaticEmbedder,
    chat_values,
    shipped,
)
from shortlist.index.vectors import QueryVectors
from tests.fakes import HashingEmbedder
from tests.index.models import DIMENSIONS, pooled, three_inputs, unmasked, unpooled, write_onnx, write_static

Folder = Callable[[Path], Path]


@pytest.fixture(params=["onnx", "static"])
def embedder(request: pytest.FixtureRequest, tmp_path: Path) -> Embedder:
    if request.param == "onnx":
        return OnnxEmbedder(write_onnx(tmp_path / "small"))
    return StaticEmbedder(write_static(tmp_path / "static"))


def test_every_embedder_plays_the_role(embedder: Embedder) -> None:
    assert isinstance(embedder, Embedder)
    assert isinstance(HashingEmbedder(), Embedder)
    assert embedder.model_id.startswith("tiny@")
    assert embedder.dimensions == DIMENSIONS


def test_vectors_have_length_one_and_the_same_text_is_the_same_vector(embedder: Embedder) -> None:
    vectors = embedder.embed_documents(["create event", "read file", "create event"])
    assert vectors.shape == (3, DIMENSIONS)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-6)
    assert embedder.embed_query("read file") == pytest.approx(vectors[1], abs=1e-6)


def test_a_text_is_embedded_alike_in_every_company(embedder: Embedder) -> None:
    texts = [f"{'create ' * (n % 5)}event" for n in range(70)]
    together = embedder.embed_documents(texts)
    alone = np.stack([embedder.embed_documents([text])[0] for text in texts])
    assert together == pytest.approx(alone, abs=1e-5)


def test_a_graph_without_a_mask_makes_the_same_vectors(tmp_path: Path) -> None:
    masked = OnnxEmbedder(write_onnx(tmp_path / "masked"))
    plain = OnnxEmbedder(write_onnx(tmp_path / "plain", unmasked()))
    assert plain.embed_query("create event") == pytest.approx(masked.embed_query("create event"), abs=1e-6)


def test_a_model_reads_chats_with_other_values_and_requests_with_its_own() -> None:
    requests = OnnxEmbedder(WEIGHTS / "small")
    before, chats = requests.embed_query("send it [SEP] mail create draft"), requests.for_chats()
    assert chats is not None
    assert chats.model_id == requests.model_id
    read = chats.embed_query("send it [SEP] mail create draft")
    assert float(read @ before) < 0.99
    assert np.linalg.norm(read) == pytest.approx(1, abs=1e-5)
    assert (requests.embed_query("send it [SEP] mail create draft") == before).all()


def test_chats_are_read_alike_in_every_company() -> None:
    chats = OnnxEmbedder(WEIGHTS / "small").for_chats()
    assert chats is not None
    many = chats.embed_documents(["send it [SEP] mail create draft"] * (FEW_TEXTS + 1))
    assert many[-1] == pytest.approx(chats.embed_query("send it [SEP] mail create draft"), abs=1e-3)


def test_every_value_for_chats_is_one_of_the_model() -> None:
    """The runtime ignores names that it does not know."""
    graph, values = (WEIGHTS / "small" / MODEL_FILE).read_bytes(), chat_values(WEIGHTS / "small" / CHATS_FILE)
    assert len(values) > 90
    assert [name for name in values if name.encode() not in graph] == []


def test_a_model_without_values_for_chats_reads_none(tmp_path: Path) -> None:
    assert OnnxEmbedder(write_onnx(tmp_path / "small")).for_chats() is None


@pytest.mark.parametrize(
    "damage", ["another file", "no file", "no archive, known digest", "other arrays, known digest"]
)
def test_damaged_values_for_chats_are_named(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "small"
    shutil.copytree(WEIGHTS / "small", folder)
    file, card = folder / CHATS_FILE, folder / "model.json"
    if damage == "no file":
        file.unlink()
    elif damage.startswith("other arrays"):
        np.savez(file, codes=np.zeros(3, np.uint8))
    else:
        file.write_bytes(b"damaged")
    if damage.endswith("known digest"):
        raw = json.loads(card.read_text("utf-8")) | {"chats": hashlib.sha256(file.read_bytes()).hexdigest()}
        card.write_text(json.dumps(raw), "utf-8")
    chats = OnnxEmbedder(folder).for_chats()
    assert chats is not None
    with pytest.raises(ModelError, match=r"chats\.npz.*; reinstall"):
        chats.embed_query("send it")


def test_a_rewritten_file_with_the_same_weights_keeps_the_name_of_its_vectors(tmp_path: Path) -> None:
    before = OnnxEmbedder(write_onnx(tmp_path / "before"))
    after = OnnxEmbedder(write_onnx(tmp_path / "after", unmasked(), vectors=before.card.digest))
    assert after.card.digest != before.card.digest
    assert after.model_id == before.model_id
    assert OnnxEmbedder(write_onnx(tmp_path / "other", unmasked())).model_id != before.model_id


def test_progress_is_told_to_the_end(embedder: Embedder) -> None:
    told: list[tuple[int, int]] = []
    embedder.embed_documents(["event"] * 40, lambda done, total: told.append((done, total)))
    assert told[-1] == (40, 40)


def test_a_text_that_cannot_be_read_is_raised_wherever_it_was_tried(tmp_path: Path) -> None:
    model = OnnxEmbedder(write_onnx(tmp_path / "small"))
    with pytest.raises(TypeError):
        model.embed_documents(["event", None, "event", None] * 20)  # type: ignore[list-item]


class Noted(list[str]):
    """Texts that know which of them were taken."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(texts)
        self.taken: list[SupportsIndex] = []

    def __getitem__(self, at: Any) -> Any:
        self.taken.append(at)
        return super().__getitem__(at)


def test_whoever_stops_the_work_stops_it_on_every_core(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    model, texts, before = (
        OnnxEmbedder(write_onnx(tmp_path / "small")),
        Noted(["event"] * 20_000),
        threading.enumerate(),
    )
    with pytest.raises(KeyboardInterrupt):
        model.embed_documents(texts, stop)
    for helper in set(threading.enumerate()) - set(before):
        helper.join()
    assert len(texts.taken) < len(texts)


def test_a_program_ends_well_while_a_thread_still_embeds() -> None:
    ends = """
import sys, threading
from shortlist.index.embedders import WEIGHTS, OnnxEmbedder
model = OnnxEmbedder(WEIGHTS / "small")
begun = threading.Event()
texts = ["create an event in the calendar of a team"] * 10_000
threading.Thread(target=model.embed_documents, args=(texts, lambda *_: begun.set()), daemon=True).start()
sys.exit(0 if begun.wait(60) else 1)
"""
    assert subprocess.run([sys.executable, "-c", ends], check=False).returncode == 0


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2, 0.4, 0.8])
def test_a_program_ends_well_while_a_thread_loads_a_model(seconds: float) -> None:
    ends = f"""
import threading, time
import onnxruntime
from shortlist.index.embedders import WEIGHTS, OnnxEmbedder
threading.Thread(target=OnnxEmbedder(WEIGHTS / "small").embed_query, args=("event",), daemon=True).start()
time.sleep({seconds})
"""
    assert subprocess.run([sys.executable, "-c", ends], check=False).returncode == 0


def test_the_runtime_leaves_nothing_behind_and_so_has_nobody_to_report_to(tmp_path: Path) -> None:
    program = "from shortlist.index.embedders import shipped; shipped('small').embed_query('rain')"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ORT_", "CI", "GITHUB_", "TF_"))}
    homes = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=kept | homes, check=True, timeout=60)
    assert list(tmp_path.rglob("*")) == []


def test_texts_that_are_read_at_the_same_time_have_a_thread_each(tmp_path: Path) -> None:
    vectors = QueryVectors(embedder := OnnxEmbedder(write_onnx(tmp_path / "small")))
    vectors.share()
    session, _ = embedder._parts()
    assert session.get_session_options().intra_op_num_threads == 1


def test_threads_that_share_a_text_wait_awake_for_a_moment_only(tmp_path: Path) -> None:
    session, _ = OnnxEmbedder(write_onnx(tmp_path / "small"))._parts()
    options = session.get_session_options()
    assert options.intra_op_num_threads == 0
    assert options.get_session_config_entry("session.intra_op.spin_duration_us") == "10"


def test_fast_instructions_are_used_only_where_they_give_the_vectors_of_the_exact_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [" ".join(["Mail the totals of March to Ruth."] * times) for times in (1, 3, 9, 27)]
    usual = OnnxEmbedder(WEIGHTS / "small").embed_documents(texts)
    monkeypatch.setattr(embedders, "sums_exactly", lambda: False)
    exact = OnnxEmbedder(WEIGHTS / "small").embed_documents(texts)
    assert np.array_equal(usual, exact)


@pytest.mark.parametrize(
    ("flags", "is_exact"),
    [
        ("flags\t\t: fpu avx2 avx512_vnni", True),
        ("flags : avx_vnni", True),
        ("flags : avx2 avx512f", False),
        ("", False),
    ],
)
def test_a_processor_is_exact_if_its_description_says_so(flags: str, is_exact: bool, tmp_path: Path) -> None:
    described = tmp_path / "cpuinfo"
    described.write_text(f"model name : avx512_vnni\n{flags}\n")
    assert embedders.sums_exactly(described) is is_exact
    assert not embedders.sums_exactly(tmp_path / "missing")


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed_documents([]).shape == (0, DIMENSIONS)


@pytest.mark.parametrize("text", ["", "   ", "event " * 170_000, "🎉🎉", "ꦗꦮ ᚠᚢᚦ", "\x00\x1b[31m", "a" * 1_000_000])
def test_any_text_has_a_finite_vector(embedder: Embedder, text: str) -> None:
    for vector in (embedder.embed_query(text), embedder.embed_documents([text, "event"])[0]):
        assert vector.shape == (DIMENSIONS,)
        assert np.isfinite(vector).all()


def test_arbitrary_texts_are_embedded(tmp_path_factory: pytest.TempPathFactory) -> None:
    static = StaticEmbedder(write_static(tmp_path_factory.mktemp("models") / "static"))

    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def embed(text: str) -> None:
        assert np.isfinite(static.embed_query(text)).all()

    embed()


def damaged(folder: Path, file: str, content: bytes = b"not what it was") -> Path:
    (folder / file).write_bytes(content)
    return folder


def without(folder: Path, file: str) -> Path:
    (folder / file).unlink()
    return folder


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda at: without(write_onnx(at / "m"), "model.json"), "model.json is missing"),
        (lambda at: damaged(write_onnx(at / "m"), "model.json"), "does not describe a model"),
        (lambda at: damaged(write_onnx(at / "m"), "model.json", b"[]"), "does not describe a model"),
        (lambda at: write_onnx(at / "m", dimensions="8"), "does not describe a model"),
        (lambda at: write_onnx(at / "m", kind="pickle"), "does not describe a model"),
        (lambda at: without(write_onnx(at / "m"), "model.onnx"), "are missing"),
        (lambda at: damaged(write_onnx(at / "m"), "model.onnx"), "are damaged"),
        (lambda at: damaged(write_onnx(at / "m", digest=""), "model.onnx"), "not a model that onnxruntime can run"),
        (lambda at: without(write_onnx(at / "m"), "tokenizer.json"), "not a tokenizer"),
        (lambda at: damaged(write_onnx(at / "m"), "tokenizer.json"), "not a tokenizer"),
        (lambda at: write_onnx(at / "m", unpooled()), "returns shape (1, 2, 8)"),
        (lambda at: write_onnx(at / "m", pooled(4)), "declares 8 dimensions"),
        (lambda at: write_onnx(at / "m", three_inputs()), "does not take input_ids and attention_mask alone"),
        (lambda at: without(write_static(at / "m"), "vectors.npy"), "are missing"),
        (lambda at: damaged(write_static(at / "m"), "vectors.npy"), "are damaged"),
        (lambda at: damaged(write_static(at / "m", digest=""), "vectors.npy"), "cannot be read"),
        (lambda at: damaged(write_static(at / "m", digest=""), "vectors.npy", b""), "cannot be read"),
        (lambda at: without(write_static(at / "m"), "scales.npy"), "cannot be read"),
        (lambda at: damaged(write_static(at / "m"), "scales.npy"), "cannot be read"),
        (lambda at: write_static(at / "m", dimensions=16), "are of shape (9, 8)"),
        (lambda at: without(write_static(at / "m").parent / "small", "tokenizer.json").parent / "m", "not a tokenizer"),
    ],
)
def test_weights_that_cannot_be_used_are_named_with_the_reason(make: Folder, says: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refused:
        _use(make(tmp_path))
    assert says in str(refused.value)


def _use(folder: Path) -> None:
    embedder = shipped(str(folder))
    assert embedder is not None
    embedder.embed_query("create event")


def test_a_failed_load_is_tried_again_once_the_files_are_there(tmp_path: Path) -> None:
    folder = write_onnx(tmp_path / "m")
    tokenizer = (folder / "tokenizer.json").read_bytes()
    embedder = OnnxEmbedder(damaged(folder, "tokenizer.json"))
    with pytest.raises(ModelError):
        embedder.embed_query("event")
    damaged(folder, "tokenizer.json", tokenizer)
    assert np.isfinite(embedder.embed_query("event")).all()


def test_other_weights_have_another_id(tmp_path: Path) -> None:
    one = OnnxEmbedder(write_onnx(tmp_path / "one"))
    other = OnnxEmbedder(write_onnx(tmp_path / "other", pooled(16)))
    assert one.model_id != other.model_id


def test_a_model_is_chosen_by_tier_or_folder_and_anything_else_is_refused(tmp_path: Path) -> None:
    assert shipped("none") is None
    assert isinstance(shipped(str(write_static(tmp_path / "static"))), StaticEmbedder)
    with pytest.raises(InvalidInput, match="No embedder 'huge'"):
        shipped("huge")


def test_the_first_dimensions_can_be_kept_alone() -> None:
    whole, narrow = shipped("small"), shipped("small:256")
    assert whole is not None
    assert narrow is not None
    first = whole.embed_query("open a pull request")[:256]
    assert narrow.embed_query("open a pull request") == pytest.approx(first / np.linalg.norm(first), abs=1e-5)
    assert (narrow.dimensions, narrow.embed_documents(["create event"]).shape) == (256, (1, 256))


def test_a_narrower_model_shares_no_vectors_with_the_whole_one() -> None:
    names = [model.model_id for model in map(shipped, ("small", "small:384", "small:256", "small:128")) if model]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_a_model_of_ones_own_can_be_narrower_too(tmp_path: Path) -> None:
    narrow = shipped(f"{write_onnx(tmp_path / 'own')}:{DIMENSIONS - 1}")
    assert narrow is not None
    assert narrow.embed_query("event").shape == (DIMENSIONS - 1,)


def test_a_folder_whose_name_ends_like_a_width_is_that_folder(tmp_path: Path) -> None:
    model = shipped(str(write_onnx(tmp_path / "version:2")))
    assert model is not None
    assert model.dimensions == DIMENSIONS


@pytest.mark.parametrize(
    ("wish", "answer"),
    [
        ("small:0", "has 384 dimensions; 0 cannot be kept"),
        ("small:400", "has 384 dimensions; 400 cannot be kept"),
        ("static:128", "needs all of its 256 dimensions"),
        ("none:128", "No embedder 'none:128'"),
        ("small:", "No embedder 'small:'"),
        ("small:half", "No embedder 'small:half'"),
    ],
)
def test_a_width_that_cannot_be_is_refused(wish: str, answer: str) -> None:
    with pytest.raises(InvalidInput, match=answer):
        shipped(wish)
