from pathlib import Path

import numpy as np
import pytest
from training.chat_vectors import chat_key, read_chat_vectors, write_chat_vectors

CHAT = [{"role": "user", "content": "send it"}]


def test_vectors_of_chats_survive_saving(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    keys = [chat_key("one", CHAT), chat_key("other", CHAT)]
    write_chat_vectors(tmp_path / "vectors.npz", keys, vectors)
    again = read_chat_vectors(tmp_path / "vectors.npz")
    assert list(again) == keys
    assert again[keys[1]] == pytest.approx(vectors[1], abs=1e-2)


def test_a_chat_is_known_by_its_catalog_and_its_messages() -> None:
    assert chat_key("one", CHAT) == chat_key("one", [dict(CHAT[0])])
    assert chat_key("one", CHAT) != chat_key("other", CHAT)
    assert chat_key("one", CHAT) != chat_key("one", [*CHAT, *CHAT])
