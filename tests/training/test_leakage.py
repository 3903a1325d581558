from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from training.bench import folders
from training.leakage import (
    EVAL_FILE,
    TRAIN_FILE,
    EvaluationGuard,
    Sketch,
    grams,
    jaccard,
    load,
    overlap,
    save,
    sketch_of,
)

from training import leakage

ASKED = "Which virtual machines of the billing department were stopped during the last night?"
NEARLY = "which virtual machines of the billing department were stopped during last night"
OTHER = "write a haiku about autumn rain and send it to grandmother"


@pytest.fixture
def evaluation() -> Sketch:
    return sketch_of([ASKED], [ASKED], ["list vms|lists all virtual machines"])


def test_the_committed_training_data_is_disjoint_from_the_evaluation_data() -> None:
    found = overlap(load(TRAIN_FILE), load(EVAL_FILE))
    assert found.clean, found


def test_the_committed_sketches_are_not_empty() -> None:
    train, evaluation = load(TRAIN_FILE), load(EVAL_FILE)
    assert min(len(train.exact), len(evaluation.exact), len(train.coarse), len(evaluation.coarse)) > 10_000
    assert min(len(train.tools), len(evaluation.tools)) > 1_000


def test_an_evaluation_query_planted_among_the_committed_ones_is_found() -> None:
    train, evaluation = load(TRAIN_FILE), load(EVAL_FILE)
    planted = replace(train, exact=np.append(train.exact, evaluation.exact[7]))
    assert overlap(planted, evaluation).exact == 1
    near = replace(train, coarse=np.vstack([train.coarse, evaluation.coarse[7]]))
    assert not overlap(near, evaluation).clean


def test_an_evaluation_tool_planted_among_the_committed_ones_is_found() -> None:
    train, evaluation = load(TRAIN_FILE), load(EVAL_FILE)
    planted = replace(train, tools=np.append(train.tools, evaluation.tools[3]))
    assert overlap(planted, evaluation).tools == 1


def test_a_planted_query_is_found_through_other_case_and_punctuation(evaluation: Sketch) -> None:
    planted = sketch_of([ASKED.upper().replace("?", " !!")], [], [])
    assert overlap(planted, evaluation).exact == 1


def test_a_planted_near_duplicate_is_found(evaluation: Sketch) -> None:
    assert jaccard(grams(ASKED), grams(NEARLY)) >= leakage.NEAR
    planted = sketch_of([NEARLY], [NEARLY], [])
    found = overlap(planted, evaluation)
    assert not found.exact
    assert found.near


def test_another_query_is_no_leak(evaluation: Sketch) -> None:
    assert overlap(sketch_of([OTHER], [OTHER], []), evaluation).clean


def test_sketches_survive_saving(tmp_path: Path, evaluation: Sketch) -> None:
    save(evaluation, tmp_path / "sketch.npz")
    again = load(tmp_path / "sketch.npz")
    assert np.array_equal(again.exact, evaluation.exact)
    assert np.array_equal(again.coarse, evaluation.coarse)
    assert np.array_equal(again.tools, evaluation.tools)


def test_the_guard_knows_queries_their_near_duplicates_and_their_tools(bench: Path) -> None:
    guard = EvaluationGuard(folders(bench, "eval"))
    assert guard.is_same("Where did the QUARTERLY parcels go...")
    assert guard.is_near("please tell me how the quarterly sales figures moved in spring!!")
    assert not guard.is_near(OTHER)
    assert len(guard.gold_keys) == 1
    assert len(guard.catalog_keys) == 2


def test_no_conversation_to_fit_on_is_a_development_request() -> None:
    assert leakage.repeated(leakage.fitted_conversations(), leakage.development_requests()) == []


def test_no_request_beside_pasted_text_to_fit_on_is_a_development_request() -> None:
    measured = [*leakage.development_requests(), *leakage.development_asks()]
    assert leakage.repeated(leakage.fitted_asks(), measured) == []


def test_no_development_request_is_among_the_training_queries() -> None:
    written = leakage.development_requests()
    found = overlap(load(TRAIN_FILE), sketch_of(written, written, []))
    assert (found.exact, found.near) == (0, 0)


def test_a_development_request_planted_among_the_conversations_is_found() -> None:
    asked = leakage.development_requests()
    assert len(asked) > 600
    assert leakage.repeated([asked[40].upper()], asked) == [asked[40].upper()]


def test_every_file_of_development_requests_is_checked() -> None:
    assert {file.stem for file in leakage.UNDERSTANDING.glob("*.jsonl")} == set(leakage.DEVELOPMENT)
