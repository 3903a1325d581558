"""Saved indexes in a bucket, through the real client library and a real service (`rclone serve s3`)."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes import catalog, tool

from shortlist.index.bucket import BucketIndexes
from shortlist.index.columns import Growing
from shortlist.index.index import Index
from shortlist.index.saved import SAVED_FROM
from tests_all.support import Foreign

URL = "s3://tools/indexes"
KEY, SECRET = "name", "very-secret"
PART = 5 * 1024 * 1024
"""The library uploads a larger file in several parts."""
LISTED_AT_ONCE = 1_000
"""A longer list of objects is answered in several pages."""
TOOLS = [tool(f"s{n % 50}/tool_{n}", f"Does thing number {n}.") for n in range(SAVED_FROM)]
LARGE = [
    tool(f"large/tool_{n}", "Has a long schema.", inputSchema={"type": "object", "$comment": "x" * (PART // 8)})
    for n in range(9)
]


@dataclass(frozen=True, slots=True)
class Service:
    """The service, and machines that use it; each has a cache of its own."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def machine(self, name: str) -> BucketIndexes:
        self.monkeypatch.setenv("XDG_CACHE_HOME", str(self.folder / name))
        return BucketIndexes(URL, None)

    @property
    def objects(self) -> list[Path]:
        return [path for path in (self.folder / "buckets" / "tools").rglob("*") if path.is_file()]


@pytest.fixture
def service(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    buckets = tmp_path / "buckets"
    (buckets / "tools").mkdir(parents=True)
    options = ["--config", "", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}"]
    command = [*foreign.script("rclone"), "serve", "s3", *options, str(buckets)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            url = next(found[0] for line in running.stderr if (found := re.search(r"http://[\d.:]+", line)))
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            monkeypatch.setenv("AWS_REGION", "us-east-1")
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            yield Service(tmp_path, monkeypatch)
        finally:
            running.kill()


def test_an_index_that_one_machine_published_is_opened_by_another(service: Service) -> None:
    whole = catalog([*TOOLS, *LARGE])
    service.machine("one").keep(Index.build(whole))
    published = service.objects
    assert max(path.stat().st_size for path in published) > PART
    found = service.machine("two").open(whole)
    assert isinstance(found.ids, Growing), "it was fetched, not built"
    copies = {path.name: path.read_bytes() for path in (service.folder / "two").rglob("*") if path.is_file()}
    assert copies == {path.name: path.read_bytes() for path in published}
    service.machine("three").keep(Index.build(whole))
    assert service.objects == published, "what is there is not uploaded again"


def test_an_index_is_found_behind_a_thousand_other_objects(service: Service) -> None:
    others = service.folder / "buckets" / "tools" / "indexes" / "0-older" / "upload"
    others.mkdir(parents=True)
    for number in range(LISTED_AT_ONCE + 1):
        (others / f"{number}.npy").touch()
    index = Index.build(catalog(TOOLS))
    service.machine("one").keep(index)
    assert isinstance(service.machine("two").open(index.catalog).ids, Growing)


def test_a_refused_key_is_reported_without_the_secret_and_the_index_is_built(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    machine = service.machine("one")
    machine.keep(machine.open(catalog(TOOLS)))
    assert "cannot be fetched from s3://tools/indexes" in caplog.text
    assert "cannot be uploaded to s3://tools/indexes" in caplog.text
    assert "403" in caplog.text
    assert "not-the-secret" not in caplog.text
    assert service.objects == []
