"""The code that mutants break: where it is, a copy of it for tools that change files, and the proof of what is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SERVICES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "services").iterdir() if path.is_dir())
FOLDERS = ("shared", *_SERVICES, "simulator", "tools", "client")
PACKAGES = tuple(sorted(path.parent.name for folder in FOLDERS for path in (ROOT / folder).glob("*/__init__.py")))

MUTANT = "MUTANTS_MUTANT"  # environment of a test process: where its mutant is defined
REPORT = "MUTANTS_REPORT"  # the file that it tells in what came of it

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis")


class WrongCode(Exception):
    """What ran was not what should have run."""


def environment(root: Path) -> dict[str, str]:
    """So that Python imports the code of `root`, not the editable installation, and keeps nothing compiled of it."""
    folders = [str(root / name) for name in ("tests", *FOLDERS)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*folders, *_given(root)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def _given(root: Path) -> list[str]:
    """What else the caller has on its path, but for other copies of the code."""
    own = {str(ROOT / name) for name in ("tests", *FOLDERS)}
    return [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder not in own]


def copied(path: Path) -> Path:
    """Copy the code and its tests to `path`; recorded data is only linked. Raises WrongCode."""
    path.mkdir(parents=True)
    for name in ("shared", "services", "simulator", "tools", "tests"):
        ignored = _LEFT_OUT if name != "tests" else _without_data
        shutil.copytree(ROOT / name, path / name, ignore=ignored)
    (path / "tests" / "data").symlink_to(ROOT / "tests" / "data")
    shutil.copy2(ROOT / "pyproject.toml", path)
    prove(path)
    return path


def _without_data(folder: str, names: list[str]) -> set[str]:
    return _LEFT_OUT(folder, names) | ({"data"} & set(names) if Path(folder) == ROOT / "tests" else set())


def prove(root: Path) -> None:
    """Ask a Python process where it imports the code from. Raises WrongCode."""
    script = f"import importlib\nfor name in {PACKAGES!r}: print(importlib.import_module(name).__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env=environment(root),
        capture_output=True,
        text=True,
        check=True,
    )
    foreign = [line for line in answer.stdout.splitlines() if not Path(line).is_relative_to(root)]
    if foreign or len(answer.stdout.splitlines()) != len(PACKAGES):
        raise WrongCode(f"imported from elsewhere than {root}: {foreign}")
