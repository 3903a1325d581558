from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from training.bench import Folder, folders, write_lines
from training.data import Built, build, development_sets, evaluation_sets, record_of
from training.errands import Wish, errands
from training.holdout import HoldOut, choose_holdout, fork_families, read_holdout, write_holdout
from training.paraphrase import clause, everyday, first_sentence, imperative, keywords, typo, with_placeholders
from training.prepared import NOTHING, read_training
from training.texts import tool_key


@pytest.fixture(scope="session")
def holdout(bench: Path) -> HoldOut:
    train = bench / "train"
    return choose_holdout(Folder(train / "labelled"), Folder(train / "authored"), folders(bench, "catalogs"))


@pytest.fixture(scope="session")
def built(bench: Path, holdout: HoldOut) -> Built:
    return build(bench, holdout)


def held_tools(bench: Path, holdout: HoldOut) -> Iterator[str]:
    for folder in (*folders(bench, "catalogs"), Folder(bench / "train/authored")):
        yield from (tool_key(tool) for tool in folder.tools if holdout.holds_server(tool.server))


def test_some_but_not_all_servers_are_held_out(bench: Path, holdout: HoldOut) -> None:
    wild = {tool.server for tool in folders(bench, "catalogs")[0].tools}
    assert 0 < sum(map(holdout.holds_server, wild)) < len(wild)


def test_the_hold_out_survives_writing_and_reading(tmp_path: Path, holdout: HoldOut) -> None:
    write_holdout(holdout, tmp_path / "holdout.json")
    assert read_holdout(tmp_path / "holdout.json") == holdout


def test_no_tool_of_a_held_out_server_is_trained_on(bench: Path, holdout: HoldOut, built: Built) -> None:
    held = set(held_tools(bench, holdout))
    assert held
    assert not held & built.table.keys.keys()


def test_queries_of_held_out_right_tools_are_not_trained_on(bench: Path, holdout: HoldOut, built: Built) -> None:
    trained = {pair.query for pair in built.pairs}
    held = [case for case in Folder(bench / "train/authored").cases if holdout.holds("authored", case.gold)]
    assert held
    assert not trained & {case.query for case in held}


def test_whole_sets_are_development_data_only(built: Built) -> None:
    assert "move my money" not in {pair.query for pair in built.pairs}
    assert not any("bank:" in text for text in built.table.texts)


def test_a_right_tool_of_an_evaluation_query_is_no_positive_and_no_negative(bench: Path, built: Built) -> None:
    asked = tool_key(Folder(bench / "eval/judged").tools[0])
    assert asked not in built.table.keys


def test_a_query_with_one_forbidden_right_tool_keeps_its_other_one(bench: Path, holdout: HoldOut, built: Built) -> None:
    both = next(case for case in Folder(bench / "train/labelled").cases if len(case.gold) == 2)
    if holdout.holds(both.source, both.gold):
        pytest.skip("held out by hash")
    pair = next(pair for pair in built.pairs if pair.query == both.query)
    assert len(pair.positives) == 1


def test_the_same_and_nearly_the_same_query_are_dropped_and_counted(built: Built) -> None:
    queries = [pair.query for pair in built.pairs]
    assert not any("quarterly" in query for query in queries)
    assert built.dropped["same written"] >= 1
    assert built.dropped["near written"] >= 1


def test_views_of_one_tool_share_a_group_and_only_whole_texts_are_negatives(built: Built) -> None:
    table = built.table
    pair = next(pair for pair in built.pairs if pair.kind == "self_name_to_description")
    group = table.groups[pair.positives[0]]
    whole = [n for n in range(len(table.texts)) if table.groups[n] == group and table.negatives[n]]
    assert not table.negatives[pair.positives[0]]
    assert len(whole) == 1


def test_building_twice_gives_the_same_pairs(bench: Path, holdout: HoldOut, built: Built) -> None:
    assert build(bench, holdout).pairs == built.pairs


def test_development_sets_search_the_authored_queries_among_unseen_tools(bench: Path, holdout: HoldOut) -> None:
    sets = {each["name"]: each for each in development_sets(bench, holdout)}
    assert {"authored", "apibank"} <= sets.keys()
    unseen = set(held_tools(bench, holdout))
    assert len(sets["authored"]["texts"]) == len(unseen)  # type: ignore[arg-type]


def test_an_errand_holds_its_wishes_and_all_their_answers(built: Built) -> None:
    made = [pair for pair in built.pairs if pair.parts]
    assert made
    for errand in made[:200]:
        parts = [built.pairs[row] for row in errand.parts]
        assert errand.positives == tuple(part.positives[0] for part in parts)
        assert len(set(errand.positives)) == len(parts) > 1
        assert all(part.query[1:] in errand.query for part in parts)


def test_development_errands_are_made_of_held_out_queries_alone(bench: Path, holdout: HoldOut, built: Built) -> None:
    (made,) = [each for each in development_sets(bench, holdout) if each["name"] == "errands"]
    texts: list[str] = made["texts"]  # type: ignore[assignment]
    asked = {number for case in made["cases"] for number in case["g"]}  # type: ignore[attr-defined]
    assert asked
    assert not {texts[number] for number in asked} & set(built.table.texts)


def test_errands_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    wishes = [Wish(f"wish {n} for {server}", server, 10 * n + len(server)) for n in range(5) for server in ("a", "bb")]
    assert errands(wishes, 20, seed=1) == errands(wishes, 20, seed=1) != errands(wishes, 20, seed=2)


def test_no_errand_is_made_where_every_server_does_one_thing() -> None:
    assert errands([Wish("wake me", "clock", 0), Wish("rain?", "weather", 1)], 5, seed=0) == []


def test_a_sample_of_the_pairs_keeps_the_parts_of_its_errands(built: Built, tmp_path: Path) -> None:
    write_lines(tmp_path / "texts.jsonl.gz", built.table.records())
    write_lines(tmp_path / "pairs.jsonl.gz", map(record_of, built.pairs))
    sample = read_training(tmp_path, largest=100)
    rows = [row for row, kind in enumerate(sample.kinds) if kind.startswith("errand")]
    assert rows
    for row in rows:
        parts = [part for part in sample.parts[row].tolist() if part != NOTHING]
        assert all(sample.queries[part][1:] in sample.queries[row] for part in parts)


def test_evaluation_sets_number_their_right_tools(bench: Path) -> None:
    (judged,) = evaluation_sets(bench)
    assert [case["g"] for case in judged["cases"]] == [[0], [0]]  # type: ignore[attr-defined]


def test_forks_of_a_server_stay_on_one_side(bench: Path, tmp_path: Path) -> None:
    tools = (bench / "catalogs/wild/tools.jsonl.gz").read_bytes()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tools.jsonl.gz").write_bytes(tools)
    families = fork_families([Folder(tmp_path / "one"), Folder(tmp_path / "two")])
    assert families["wild0"] != families["wild1"]
    assert len(families) == 30


def test_descriptions_become_what_a_user_would_say() -> None:
    assert imperative("Retrieves the list of users") == "retrieve the list of users"
    assert imperative("Searches for code") == "search for code"
    assert first_sentence("Gets a file. Needs a path.") == "Gets a file"
    assert clause("get users, including their roles") == "get users"
    assert everyday("delete repository", Random(1)).split()[0] in {"remove", "get", "erase", "drop", "throw"}


def test_placeholders_take_the_place_of_values() -> None:
    assert with_placeholders("open 'Q3 plan' now", ("file_name",), Random(0)) in (
        "open <file-name> now",
        "open <file_name> now",
    )


def test_a_typo_changes_one_long_word_only() -> None:
    before, after = "list repositories of me", typo("list repositories of me", Random(3))
    assert sum(a != b for a, b in zip(before.split(), after.split(), strict=True)) <= 1


def test_keyword_queries_keep_the_order_of_the_words() -> None:
    assert keywords("create the pull request", 9, Random(0)) == "create pull request"
