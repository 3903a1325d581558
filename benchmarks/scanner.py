"""How many poisoned definitions are caught, and how many real tools are flagged, by Shortlist and by others.

    python -m benchmarks.scanner                         # 25,759 real tools, about 20 minutes on 2 cores
    python -m benchmarks.scanner --trained               # and what the classifier was trained on, about as long again
    python -m benchmarks.scanner --real 2000             # a sample of the real tools
    python -m benchmarks.scanner --cisco .venv-cisco/bin/python
    python -m benchmarks.scanner --results --real 1000   # the `results` policy: payloads and real texts as results

Malicious: the written pairs of `training/poison/unseen`, on which the shipped classifier was not trained (a
`rare family` is one that at most ten of the texts belong to on which it was: see
`training/poison/rare_families.txt`), the published set of MCPProxy (57 entries, never used for fitting), and with
`--trained` the corpus and the written pairs of `training/poison`, on which it was. The first table has families and
writers of `training/poison` as judged by classifiers of an earlier training that left them out, and by the checks that
nothing is trained for (`training.poison.train` on a GPU, then `training.poison.calibrate`).

Real tools: `eval/mcp_union`. Thresholds were set with what they flag of these tools in view, so that the limits hold.
About 15,000 of them are also in the catalogs that the classifier was trained on; the other 10,040 are printed as
`real, unseen`. `packages, left out` are tools of npm and PyPI packages that it was not trained on, most of them read
from their source: their descriptions are longer. Intervals: Wilson, 95 %.

Cisco's rules (PyPI `cisco-ai-mcp-scanner`, YARA only) run in their own environment: `python -m venv .venv-cisco &&
.venv-cisco/bin/pip install cisco-ai-mcp-scanner`. MCPProxy's checks are written here from their public description
(phrases of injection, hidden Unicode, decoded payloads, other servers' tool names); the phrase list is a first attempt.
"""

import argparse
import base64
import functools
import gzip
import json
import math
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import training.poison.corpus
from training.bench import data_folder
from training.poison.corpus import corpus
from training.poison.fit import collected_tools, definition_of
from training.poison.folds import SERVERS_OF_FINAL, server_fold
from training.poison.written import UNSEEN as UNSEEN_WRITERS
from training.poison.written import rare_families, written

from shortlist.cli.pinning import open_inspection, open_scanner
from shortlist.trust.definitions import Neighbours, ToolDefinition, fields_of, surroundings
from shortlist.trust.verdicts import DefinitionScanner

AT_ONCE = 100
HEADING = f"{'group':42} {'n':>6} {'flagged':>8} {'95 % interval':>15} {'dangerous':>10}"
REAL, UNSEEN = "real", "real, unseen"
LEFT_OUT = "packages, left out"
EVERY_LEFT_OUT = 4
"""Of so many tools of packages that were left out of the training, one is scanned."""
HELD_OUT = Path(training.poison.corpus.__file__).parent / "held_out.json"
Judge = Callable[[Sequence[ToolDefinition]], list[str]]
"""Returns clean, suspicious or dangerous for each definition."""
PHRASES = (
    *("ignore previous instructions", "ignore all previous", "disregard previous", "system prompt", "<important>"),
    *("do not tell the user", "don't tell the user", "you must", "id_rsa", ".ssh", "secretly", "without the user"),
    *("api key", "password"),
)
INJECTION = re.compile(
    r"ignore (all |any )?(previous|prior|above)|disregard (all |any )?(previous|prior)|hidden instruction|"
    r"do not (tell|mention|inform|reveal)|<(important|system|secret|instructions?)>|"
    r"before (using|calling) this tool,? (you must|read|first)",
    re.IGNORECASE,
)
HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
BASE64 = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A definition with the rows of the table that it counts in."""

    groups: tuple[str, ...]
    definition: ToolDefinition


def text_of(definition: ToolDefinition) -> str:
    fields, _ = fields_of(definition)
    return "\n".join(field.text for field in fields)


def phrase_list(definitions: Sequence[ToolDefinition]) -> list[str]:
    texts = (text_of(definition).lower() for definition in definitions)
    return ["dangerous" if any(phrase in text for phrase in PHRASES) else "clean" for text in texts]


def mcpproxy(definitions: Sequence[ToolDefinition]) -> list[str]:
    """Judge by what MCPProxy publicly describes; foreign tool names are those of the other definitions."""
    names: dict[str, set[str]] = defaultdict(set)
    for definition in definitions:
        names[definition.server].add(str(definition.tool.get("name", "")))
    everywhere = {name for each in names.values() for name in each if "_" in name}
    return [_mcpproxy(definition, everywhere - names[definition.server]) for definition in definitions]


def _mcpproxy(definition: ToolDefinition, foreign: set[str]) -> str:
    text = text_of(definition)
    decoded = " ".join(_decoded(run) for run in BASE64.findall(text)[:20])
    if INJECTION.search(text) or INJECTION.search(decoded) or HIDDEN.search(text):
        return "dangerous"
    mentioned = set(re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", text)) & foreign
    return "suspicious" if mentioned and re.search(r"instead|before|always|when .* is called", text) else "clean"


def _decoded(run: str) -> str:
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4)).decode("utf-8")
    except ValueError:
        return ""


def shortlist(definitions: Sequence[ToolDefinition]) -> list[str]:
    around = surroundings(definitions)
    work = [
        [(each, around[each.server]) for each in definitions[start : start + AT_ONCE]]
        for start in range(0, len(definitions), AT_ONCE)
    ]
    found, seconds = [], 0.0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        for done, (levels, spent) in enumerate(processes.map(_scanned, work), 1):
            found += levels
            seconds += spent
            print(f"\r{len(found):,} of {len(definitions):,}", end="" if done < len(work) else "\n", file=sys.stderr)
    print(
        f"\nscan time: {len(found):,} definitions in {seconds:.0f} s of CPU, {len(found) / seconds:.0f} a second",
        end="",
    )
    return found


def _scanned(part: Sequence[tuple[ToolDefinition, Neighbours]]) -> tuple[list[str], float]:
    """Return the levels of some definitions, and how much time of the CPU they took."""
    scanner = _scanner()
    started = time.process_time()
    return [scanner.scan(definition, around).level for definition, around in part], time.process_time() - started


@functools.cache
def _scanner() -> DefinitionScanner:
    scanner = open_scanner()
    scanner.scan(ToolDefinition("a", "a", {"name": "add", "description": "Adds two numbers."}))  # loads the classifier
    return scanner


CISCO = """
import asyncio, json, sys
from importlib.metadata import version
from mcpscanner.core.analyzers.yara_analyzer import YaraAnalyzer
async def main():
    print(version("cisco-ai-mcp-scanner"))
    analyzer = YaraAnalyzer()
    for line in open(sys.argv[1], encoding="utf-8"):
        text, name = json.loads(line)
        findings = await analyzer.analyze(text, {"tool_name": name})
        print("dangerous" if findings else "clean")
asyncio.run(main())
"""


def cisco(python: Path) -> Judge:
    def judge(definitions: Sequence[ToolDefinition]) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps([text_of(d), str(d.tool.get("name", ""))]) + "\n" for d in definitions)
            file.flush()
            done = subprocess.run([python, "-c", CISCO, file.name], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"Cisco's scanner failed: {done.stderr[-500:]}")
        version, *verdicts = done.stdout.split()
        print(f"\ncisco-ai-mcp-scanner {version}", end="")
        return verdicts

    return judge


def trained_on() -> Iterable[Labelled]:
    for example in corpus():
        groups = (example.family,) if example.family == "benign" else (example.family, "ALL corpus")
        yield Labelled(groups, ToolDefinition(example.id, example.server, example.tool, example.server_instructions))
    for each in written():
        groups = (f"written {each.family}", "ALL written") if each.poisoned else ("written honest",)
        yield Labelled(groups, each.definition)


def malicious_and_benign() -> Iterable[Labelled]:
    for each in written(UNSEEN_WRITERS):
        spoken = "English" if each.language == "en" else "other languages"
        groups = [f"unseen honest, {spoken}"]
        if each.poisoned:
            groups = [f"unseen writer {each.writer}, {spoken}", "ALL unseen", f"ALL unseen, {spoken}"]
            groups += families_of(each.family, spoken)
        yield Labelled(tuple(groups), each.definition)
    published = json.loads((data_folder() / "security" / "poisoning.json").read_text("utf-8"))["entries"]
    for entry in published:
        malicious = (f"published {entry['category']}", "ALL published")
        groups = ["published benign"] if entry["label"] == "benign" else [*malicious]
        yield Labelled(tuple(groups), ToolDefinition(entry["id"], entry["server"], entry["tool"]))
        for peer in entry.get("peers", ()):  # tools of other servers, which it imitates or gives orders about
            yield Labelled((), ToolDefinition(f"{entry['id']}-{peer['server']}", peer["server"], peer["tool"]))


def families_of(family: str, spoken: str) -> list[str]:
    """Return the rows of a family of an unseen writer, by whether the training hardly knows it."""
    if family not in rare_families():
        return [f"family {family}, unseen"]
    return [f"rare family {family}", "ALL rare families", f"ALL rare families, {spoken}"]


def real(count: int | None) -> list[Labelled]:
    unseen = {definition.id for definition in _tools("mcp_union_unseen")}
    found = [Labelled((REAL, UNSEEN) if each.id in unseen else (REAL,), each) for each in _tools("mcp_union")]
    return found[:: max(1, len(found) // count)][:count] if count else found


def left_out() -> Iterable[Labelled]:
    """Yield tools of the packages that the shipped classifier was not trained on."""
    found = [each for each in collected_tools() if server_fold(each.server) in SERVERS_OF_FINAL]
    return (Labelled((LEFT_OUT,), each) for each in found[::EVERY_LEFT_OUT])


def _tools(name: str) -> list[ToolDefinition]:
    with gzip.open(data_folder() / "eval" / name / "tools.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [definition_of(json.loads(line)) for line in lines]


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z, share = 1.96, hits / total
    middle, spread = (
        share + z * z / (2 * total),
        z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)),
    )
    return (middle - spread) / (1 + z * z / total), (middle + spread) / (1 + z * z / total)


def report(name: str, labelled: Sequence[Labelled], verdicts: Sequence[str]) -> None:
    print(f"\n{name}\n{HEADING}")
    groups: dict[str, list[str]] = defaultdict(list)
    for item, verdict in zip(labelled, verdicts, strict=True):
        for group in item.groups:
            groups[group].append(verdict)
    for group, found in sorted(groups.items()):
        flagged, dangerous = sum(v != "clean" for v in found), sum(v == "dangerous" for v in found)
        print_row(group, len(found), flagged, dangerous)


def print_row(group: str, total: int, flagged: int, dangerous: int) -> None:
    low, high = wilson(flagged, total)
    print(f"{group:42} {total:6} {flagged / total:8.4f} {low:7.4f}-{high:6.4f} {dangerous / total:10.4f}")


def print_held_out() -> None:
    """Print what classifiers of an earlier training without a family or a writer find of it."""
    print(f"held out of an earlier training\n{HEADING}")
    for group, (total, flagged, dangerous) in json.loads(HELD_OUT.read_text("utf-8")).items():
        print_row(group, total, flagged, dangerous)


def print_results(count: int | None) -> None:
    """Print what the `results` policy finds in payloads, and in the descriptions of real tools, as results of calls."""
    inspect = open_inspection()
    payloads = sorted({example.payload for example in corpus() if example.payload})
    texts = [str(item.definition.tool.get("description", "")) for item in real(count)]
    print(f"{'results of calls':32} {'n':>6} {'found':>8} {'95 % interval':>15}")
    for name, group in (("payloads", payloads[:: max(1, len(payloads) // 500)]), ("real descriptions", texts)):
        found = sum(bool(inspect("any", {"content": [{"type": "text", "text": text}]})) for text in group)
        low, high = wilson(found, len(group))
        print(f"{name:32} {len(group):6} {found / len(group):8.4f} {low:7.4f}-{high:6.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=int, help="a sample of so many real tools (default: all 25,759)")
    parser.add_argument("--trained", action="store_true", help="also what the classifier was trained on")
    parser.add_argument("--cisco", type=Path, help="the Python of an environment with cisco-ai-mcp-scanner")
    parser.add_argument("--results", action="store_true", help="measure the policy for results of calls instead")
    options = parser.parse_args()
    if options.results:
        print_results(options.real)
        return
    print_held_out()
    labelled = [*(trained_on() if options.trained else ()), *malicious_and_benign(), *left_out(), *real(options.real)]
    definitions = [item.definition for item in labelled]
    judges: dict[str, Judge] = {
        "shortlist": shortlist,
        "MCPProxy's checks as described": mcpproxy,
        "phrase list": phrase_list,
    }
    for name, judge in judges.items():
        report(name, labelled, judge(definitions))
    if options.cisco:
        report("Cisco's YARA rules", labelled, cisco(options.cisco)(definitions))
    else:
        print("\nCisco's rules were not run: pass --cisco PYTHON of an environment that has cisco-ai-mcp-scanner.")


if __name__ == "__main__":
    main()
