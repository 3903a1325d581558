import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit

from shortlist.index.embedders import WEIGHTS
from shortlist.text.pieces import Pieces

TOKENIZER = Tokenizer.from_file(str(WEIGHTS / "small" / "tokenizer.json"))
PIECES = Pieces(TOKENIZER)
special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: not any(s in text for s in special))


@given(texts)
@example("Don't list_all-the files (owner, repo) at https://example.org/a?b=c!")
@example("naïve café, 天気を教えて a天b, İstanbul ǅ ß ﬁ")
@example("a\tb\nc\x00d\x1ce\u00a0f\u2003g\u0301 \u0301h")
@example("x" * 150)
def test_a_text_read_word_by_word_has_the_pieces_that_it_has_as_a_whole(text: str) -> None:
    assert PIECES([text]) == [TOKENIZER.encode(text, add_special_tokens=False).ids]


def test_a_text_that_spells_a_special_token_is_read_as_words() -> None:
    assert PIECES(["[SEP]"]) == PIECES(["[ sep ]"])
    assert PIECES(["[SEP]"]) != [TOKENIZER.encode("[SEP]", add_special_tokens=False).ids]


def test_a_tokenizer_of_another_make_is_given_the_whole_text() -> None:
    other = Tokenizer.from_file(str(WEIGHTS / "small" / "tokenizer.json"))
    other.pre_tokenizer = WhitespaceSplit()
    assert Pieces(other)(["list-files"]) == [other.encode("list-files", add_special_tokens=False).ids]
    assert Pieces(other)(["list-files"]) != PIECES(["list-files"])


def test_words_of_any_length_are_read_and_not_kept() -> None:
    pieces, enormous = Pieces(TOKENIZER), [f"{number}{'語' * 50_000} short" for number in range(20)]
    pieces(["short"])
    tracemalloc.start()
    first = pieces(enormous[:1])
    for text in enormous:
        pieces([text])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert first == [TOKENIZER.encode(enormous[0], add_special_tokens=False).ids]
    assert kept < 3 * 50_000 * 50  # the first answer, and none of the others
