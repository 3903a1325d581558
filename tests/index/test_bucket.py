"""Indexes that machines share through object storage; a folder stands for the bucket, by the same library."""

import logging
import sys
from pathlib import Path

import pytest

from shortlist.errors import InvalidInput
from shortlist.index import saved
from shortlist.index.bucket import BucketIndexes, open_saved
from shortlist.index.columns import Growing
from shortlist.index.index import Index
from shortlist.index.saved import SAVED_FROM, SavedIndexes
from shortlist.library.filter import ToolFilter
from tests.fakes import HashingEmbedder, catalog, tool

pytest.importorskip("obstore", reason="needs the extra 'bucket'")

TOOLS = [tool(f"s{n % 50}/tool_{n}", f"Does thing number {n}.") for n in range(SAVED_FROM + 20)]
WHOLE = catalog(TOOLS)


class Machines:
    """Machines with a cache each, and one bucket."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self.bucket = folder / "bucket"
        self.url = self.bucket.as_uri()

    def use(self, name: str) -> BucketIndexes:
        self._monkeypatch.setenv("XDG_CACHE_HOME", str(self._folder / name))
        return BucketIndexes(self.url, None)

    def uploads(self) -> list[Path]:
        return [path.parent for path in self.bucket.glob("*/*/index.json")]


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


def test_an_index_that_one_machine_built_is_opened_by_another(machines: Machines) -> None:
    machines.use("one").keep(Index.build(WHOLE))
    found = machines.use("two").open(WHOLE)
    assert isinstance(found.ids, Growing), "it was read, not built"
    assert list(found.ids) == list(WHOLE.tools)
    machines.use("two").keep(found)
    assert len(machines.uploads()) == 1, "what is there is not uploaded again"


def test_a_machine_with_newer_tools_fetches_the_last_index_and_keeps_its_changes(machines: Machines) -> None:
    machines.use("one").keep(Index.build(WHOLE))
    newer = catalog([*TOOLS, tool("new/brew_coffee", "Brew a cup of coffee.")])
    found = machines.use("two").open(newer)
    assert isinstance(found.ids, Growing)
    assert "new/brew_coffee" in found.rows


def test_a_machine_that_only_fetches_forgets_indexes_that_it_no_longer_uses(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "KEPT", 1)
    others = catalog([tool(f"other{n % 50}/tool_{n}", f"Does {n}.") for n in range(SAVED_FROM)])
    for whole in (WHOLE, others):
        machines.use("one").keep(Index.build(whole))
        assert isinstance(machines.use("two").open(whole).ids, Growing)
    (kept,) = (tmp_path / "two").glob("shortlist/buckets/*/*")
    assert kept.name.endswith(others.fingerprint)


def test_an_upload_that_was_interrupted_is_not_fetched(machines: Machines) -> None:
    machines.use("one").keep(Index.build(WHOLE))
    (upload,) = machines.uploads()
    (upload / "index.json").unlink()
    assert not isinstance(machines.use("two").open(WHOLE).ids, Growing), "it was built"


def test_a_truncated_object_is_reported_and_the_index_is_built(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    machines.use("one").keep(Index.build(WHOLE))
    (upload,) = machines.uploads()
    cut = upload / "ids-block.npy"
    cut.write_bytes(cut.read_bytes()[:100])
    assert len(machines.use("two").open(WHOLE)) == len(WHOLE)
    assert "is damaged or missing" in caplog.text


def test_a_name_in_a_bucket_cannot_leave_the_folder_of_the_cache(machines: Machines, tmp_path: Path) -> None:
    machines.use("one").keep(Index.build(WHOLE))
    (upload,) = machines.uploads()
    (upload / "..%2F..%2Fescaped").write_bytes(b"x")
    machines.use("two").open(WHOLE)
    assert not [path for path in tmp_path.rglob("escaped*") if "bucket" not in path.parts]


def test_a_bucket_that_cannot_be_reached_is_reported_and_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "name",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("shortlist.index.bucket.RETRIES", 0)
    made = ToolFilter(TOOLS, embedder=HashingEmbedder(), saved_index="s3://tools/indexes", vector_cache=None)
    assert made.search("thing number 77").hits
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.partition(" (")[0] for message in said] == [
        "The index cannot be fetched from s3://tools/indexes",
        "The index cannot be uploaded to s3://tools/indexes",
    ]
    assert "very-secret" not in caplog.text


@pytest.mark.parametrize("url", ["ftp://tools/indexes", "s3://"])
def test_an_address_that_is_not_one_of_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not the address of a bucket. Use s3://BUCKET/PREFIX, or name a folder"):
        open_saved(url, None)


def test_secrets_in_an_address_are_not_repeated() -> None:
    with pytest.raises(InvalidInput) as raised:
        open_saved("ftp://me:hidden@tools/indexes?sig=hidden", None)
    assert "hidden" not in str(raised.value)
    assert "ftp://tools/indexes" in str(raised.value)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(InvalidInput, match=r"shortlist-mcp\[bucket\]"):
        open_saved("s3://tools/indexes", None)


def test_a_folder_stays_a_folder(tmp_path: Path) -> None:
    assert type(open_saved(str(tmp_path), None)) is SavedIndexes
