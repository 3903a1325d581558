"""A software bill of materials in CycloneDX 1.6: the packages a wheel pulls, and the models and data it carries."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from release.distributions import SOURCE, Distribution

CARRIED = {
    "weights/small/model.onnx": ("all-MiniLM-L6-v2, fine-tuned for tools", "Apache-2.0"),
    "weights/small/tokenizer.json": ("all-MiniLM-L6-v2 tokenizer", "Apache-2.0"),
    "weights/scanner/model.onnx": ("passage classifier, from the layers of all-MiniLM-L6-v2", "Apache-2.0"),
    "weights/static/vectors.npy": ("static word-piece vectors, distilled from all-MiniLM-L6-v2", "Apache-2.0"),
}
"""Files in a wheel that were made from the work of others; THIRD_PARTY_NOTICES has their terms."""


def sbom(distribution: Distribution, packages: Mapping[str, str]) -> dict[str, Any]:
    """Return the bill of one distribution; the same input always yields the same bill."""
    components = [*_packages(packages, distribution.name), *_carried(distribution)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(distribution.name, distribution.version) | _license("Apache-2.0")},
        "components": components,
    }


def _packages(packages: Mapping[str, str], own: str) -> Iterator[dict[str, Any]]:
    for name, version in sorted(packages.items()):
        if name != own:
            yield _component(name, version)


def _component(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _carried(distribution: Distribution) -> Iterator[dict[str, Any]]:
    for path, (name, license_id) in CARRIED.items():
        if Path(path) in distribution.files:
            digest = sha256((SOURCE / path).read_bytes()).hexdigest()
            yield {
                "type": "machine-learning-model" if path.endswith(".onnx") else "data",
                "bom-ref": path,
                "name": name,
                "hashes": [{"alg": "SHA-256", "content": digest}],
                **_license(license_id),
            }


def _license(identifier: str) -> dict[str, Any]:
    return {"licenses": [{"license": {"id": identifier}}]}
