"""`python -m release`: build both distributions with SBOM and checksums, and try the wheels in empty environments."""

import json
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from release.distributions import ROOT, build, distributions
from release.resolving import resolve
from release.sbom import sbom
from release.trying import try_interpreters, try_platforms


def main() -> int:
    """Build into `dist/` and print what was run and what only resolved."""
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    for old in out.iterdir():
        if old.name.startswith("shortlist_") or old.name == "SHA256SUMS":
            old.unlink()
    both = distributions()
    version = both[0].version
    with tempfile.TemporaryDirectory(prefix="shortlist-release-") as name:
        work = Path(name)
        for distribution in both:
            for path in build(distribution, work, out):
                print(f"built {path.relative_to(ROOT)} ({path.stat().st_size / 1e6:.1f} MB)")
        for distribution in both:
            packages = resolve([f"{distribution.name}=={version}"], out, "--universal", "--python-version", "3.11")
            bill = out / f"{distribution.name.replace('-', '_')}-{version}.cdx.json"
            bill.write_text(json.dumps(sbom(distribution, packages), indent=2) + "\n", "utf-8")
        _write_checksums(out)
        print("wrote SBOMs and SHA256SUMS; trying the wheels …", flush=True)
        trials = [*try_interpreters(out, version, work), *try_platforms(out, version)]
    for trial in trials:
        print(trial.line)
    return 1 if any(trial.problem for trial in trials) else 0


def _write_checksums(out: Path) -> None:
    files = sorted(path for path in out.iterdir() if path.name.startswith("shortlist_"))
    lines = [f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
