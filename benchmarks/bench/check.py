"""`make bench-check BASE=commit CASE=name`: does this tree need more, less or the same time as a commit?

The two trees take turns, each time in new processes, and the one that begins alternates. Whatever else the machine does
disturbs both alike, and `paired` says how sure the difference is.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench.paired import RISK, ROUNDS_MIN, Paired, paired

ROOT = Path(__file__).parents[2]
ONE_RUN = Path(__file__).with_name("one_run.py")
EACH = 3  # rounds within one process; their median counts

Measured = dict[tuple[str, str], float]  # by what was measured and its unit


class CaseFailed(Exception):
    """A case could not be run in one of the trees; the text is what it printed."""


def extract(repository: Path, base: str) -> Path:
    """The files of a commit. They are kept, so that kernels are compiled once for each commit."""
    git = ("git", "-C", str(repository))
    asked = [*git, "rev-parse", "--verify", "--short=12", f"{base}^{{commit}}"]
    commit = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    folder = repository / ".build" / "bench-check" / commit
    if not folder.exists():
        body = subprocess.run([*git, "archive", "--format=tar", commit], check=True, capture_output=True).stdout
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part, tarfile.open(fileobj=io.BytesIO(body)) as archive:
            archive.extractall(Path(part) / "tree", filter="data")
            (Path(part) / "tree").rename(folder)
    return folder


def measure(tree: Path, case: str) -> Measured:
    """Run a case in a tree: for each contender its processor and wall seconds and its memory, and the case's figures.
    Raises CaseFailed."""
    folders = [tree / "shared", *sorted((tree / "services").glob("*")), *(tree / name for name in ("simulator", "tools",
               "client", "benchmarks", "tests"))]  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(str(one) for one in folders if one.is_dir())}
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, "-P", str(ONE_RUN), case, str(EACH), str(out)]
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CaseFailed(f"{case} in {tree}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return _measured(json.loads(out.read_text()))


def _measured(found: Mapping[str, Any]) -> Measured:
    rounds: dict[tuple[str, str], list[float]] = {}
    for one in found["samples"]:
        for name, unit in (("cpu_s", "CPU s"), ("wall_s", "s"), ("memory_bytes", "bytes")):
            rounds.setdefault((f"{one['group']}: {one['contender']}", unit), []).append(one[name])
    for one in found["figures"]:
        rounds.setdefault((one["name"], one["unit"]), []).append(one["value"])
    return {key: median(values) for key, values in rounds.items()}


def compared(base: Sequence[Measured], changed: Sequence[Measured]) -> dict[tuple[str, str], Paired]:
    """What all rounds of both trees measured, and is above 0."""
    rounds = [*base, *changed]
    common = [key for key in base[0] if all(one.get(key, 0) > 0 for one in rounds)]
    return {key: paired([one[key] for one in base], [one[key] for one in changed]) for key in common}


def line(name: str, unit: str, base: float, one: Paired) -> str:
    """One line of the answer."""
    factor = f"{one.factor:5.2f}x ({one.low:.2f} to {one.high:.2f})"
    return f"  {name:60.60} {base:12,.6g} {unit:8} {factor:22} {one.verdict}, confidence {one.confidence:.1%}"


def main(
    base: Annotated[str, typer.Option(help="the commit to compare this tree with")],
    case: Annotated[list[str], typer.Option(help="what to measure; may be repeated")],
    rounds: Annotated[int, typer.Option(min=ROUNDS_MIN, help="turns of each tree")] = 8,
) -> None:
    """Compare this tree with a commit."""
    folder = extract(ROOT, base)
    for name in case:
        found: dict[Path, list[Measured]] = {folder: [], ROOT: []}
        for number in range(rounds):
            for tree in (folder, ROOT) if number % 2 == 0 else (ROOT, folder):
                found[tree].append(measure(tree, name))
            print(f"{name}: turn {number + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        answers = compared(found[folder], found[ROOT])
        print(f"\n== {name}: the amount of {base}, and how many times as much it is in this tree")
        for (what, unit), one in answers.items():
            print(line(what, unit, median(each[what, unit] for each in found[folder]), one))
        print(f"Chance alone makes about {RISK * len(answers):.1f} of these {len(answers)} lines less or more.\n")


if __name__ == "__main__":
    typer.run(main)
