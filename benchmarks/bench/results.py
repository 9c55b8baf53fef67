"""The raw results: one JSON file per case, with where and when they were measured."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measure import Figure, Sample

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "results"
LIBRARIES = ("pyspark", "polars", "pyarrow", "duckdb", "numpy")

MEASURED = ("shared", "services", "simulator", "tools", "benchmarks/bench")


@dataclass(frozen=True, slots=True)
class Result:
    """A case as it was measured."""

    case: str
    what: str
    date: str
    commit: str
    dirty: bool
    machine: dict[str, Any]
    samples: tuple[Sample, ...]
    figures: tuple[Figure, ...]


def result(case: str, what: str, samples: Sequence[Sample], figures: Sequence[Figure]) -> Result:
    """With the commit, date and machine of now."""
    commit = _said("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    changed = _said("git", "-C", str(ROOT), "status", "--porcelain", "--", *MEASURED)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Result(case, what, date, commit, bool(changed), machine(), tuple(samples), tuple(figures))


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    java = _said("java", "-version").splitlines()
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory[0] / (1 << 20), 1) if memory else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java[0] if java else "",
        **versions,
    }


def save(found: Result) -> Path:
    """Write it in place of the last one."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{found.case}.json"
    path.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return path


def load() -> list[Result]:
    """All of them, by name."""
    return [_parsed(json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))]


def _parsed(data: dict[str, Any]) -> Result:
    samples = tuple(Sample(**sample) for sample in data.pop("samples"))
    figures = tuple(Figure(**figure) for figure in data.pop("figures"))
    return Result(**data, samples=samples, figures=figures)


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if os.path.exists(path) else []


def _said(*command: str) -> str:
    """What a command prints; nothing where it is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return (done.stdout or done.stderr).strip()
