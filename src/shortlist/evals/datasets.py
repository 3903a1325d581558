"""Datasets: the bundled golden set, benchmark sets by name, and a user's own files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import CatalogReading, read_catalog
from shortlist.errors import DatasetMissing, InvalidInput
from shortlist.evals.cases import Case, read_cases

GOLDEN = "golden"
DEMO = Path(str(resources.files("shortlist.demo")))
DATA_VARIABLE = "SHORTLIST_BENCH_DATA"
DATA_FOLDER = Path("benchmarks/data")
FOLDERS = ("eval", "", "train")
"""Where a set's folder may lie below the data root, in the order tried."""
QUERY_FILES = ("queries.jsonl.gz", "queries.jsonl")
CATALOG_FILES = ("tools.jsonl.gz", "tools.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Cases over the catalog in these files or folders; `name` carries the split when only one is meant."""

    name: str
    catalogs: tuple[Path, ...]
    cases: tuple[Case, ...]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.split for case in self.cases))

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.segment for case in self.cases))

    def only(self, *, split: str = "", segment: str = "") -> "Dataset":
        """Keep the cases of a split or segment; a name that no case has is the caller's mistake."""
        _check_known("split", split, self.splits)
        _check_known("segment", segment, self.segments)
        kept = [c for c in self.cases if split in ("", c.split) and segment in ("", c.segment)]
        name = f"{self.name}:{split}" if split else self.name
        return replace(self, name=name, cases=tuple(kept))


def load_dataset(name: str) -> Dataset:
    """Find a set by `NAME` or `NAME:SPLIT`: the golden set, or a folder below the benchmark data."""
    base, _, split = name.partition(":")
    dataset = golden() if base == GOLDEN else _benchmark(base)
    return dataset.only(split=split)


def golden() -> Dataset:
    return Dataset(name=GOLDEN, catalogs=(demo_catalog(),), cases=read_cases(DEMO / "golden.jsonl"))


def demo_catalog() -> Path:
    return DEMO / "catalog"


def own_dataset(catalogs: Sequence[Path], cases: Path) -> Dataset:
    """Take a user's catalog files and cases; the set is named after the cases' file."""
    name = cases.name.removesuffix(".gz").removesuffix(".jsonl")
    return Dataset(name=name, catalogs=tuple(catalogs), cases=read_cases(cases))


def read_catalogs(paths: Sequence[Path]) -> CatalogReading:
    """Read files and folders of tools as one catalog."""
    readings = [read_catalog(path) for path in paths]
    if len(readings) == 1:
        return readings[0]
    catalog = Catalog.of(
        (tool for reading in readings for tool in reading.catalog.tools.values()),
        (server for reading in readings for server in reading.catalog.servers.values()),
    )
    return CatalogReading(catalog, tuple(problem for reading in readings for problem in reading.problems))


def data_root() -> Path:
    return Path(os.environ.get(DATA_VARIABLE) or DATA_FOLDER)


def _benchmark(name: str) -> Dataset:
    root = data_root()
    for folder in (root / prefix / name for prefix in FOLDERS):
        queries, catalog = _first_file(folder, QUERY_FILES), _first_file(folder, CATALOG_FILES)
        if queries and catalog:
            return Dataset(name=_set_name(folder, root), catalogs=(catalog,), cases=read_cases(queries))
    raise DatasetMissing(
        f"No dataset {name!r} under {str(root)!r}. Set {DATA_VARIABLE} to a folder with one folder "
        f"for each set (tools.jsonl.gz and queries.jsonl.gz), or pass --catalog and --cases."
    )


def _set_name(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix().removeprefix("eval/")


def _first_file(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _check_known(what: str, name: str, known: Sequence[str]) -> None:
    if name and name not in known:
        raise InvalidInput(f"No {what} {name!r}. There are: {', '.join(known)}.")
