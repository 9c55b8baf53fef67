"""A copy of the code and its tests, in which something can be broken; and the proof that the copy is what runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
FOLDERS = ("shared", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "services").iterdir() if path.is_dir()))
PACKAGES = tuple(sorted(path.parent.name for folder in FOLDERS for path in (ROOT / folder).glob("*/__init__.py")))
_COPIED = ("shared", "services", "pyproject.toml")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis", "data")


class WrongCode(Exception):
    """What ran was not the copy."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One copy. Used by one mutant at a time."""

    path: Path

    @classmethod
    def copied(cls, path: Path) -> Tree:
        """Copy the repository's code and tests to `path`; recorded data is only linked."""
        path.mkdir(parents=True)
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, path / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            else:
                shutil.copy2(source, path / name)
        shutil.copytree(ROOT / "tests", path / "tests", ignore=_LEFT_OUT)
        (path / "tests" / "data").symlink_to(ROOT / "tests" / "data")
        return cls(path)

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the mutant in it, as long as the context lasts. Raises StaleMutant."""
        before = mutant.apply(self.path)
        try:
            yield
        finally:
            (self.path / mutant.file).write_text(before)

    def environment(self) -> dict[str, str]:
        """So that Python imports the copy, not the editable installation, and keeps nothing compiled of it."""
        folders = [self.path / name for name in ("tests", *FOLDERS)]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "NUMBA_CACHE_DIR": str(self.path / ".kernels"),
            "MUTANTS_TREE": str(self.path),
        }

    def prove(self) -> None:
        """Ask a Python process where it imports the code from. Raises WrongCode."""
        script = f"import importlib\nfor name in {PACKAGES!r}: print(importlib.import_module(name).__file__)"
        answer = subprocess.run(
            [sys.executable, "-c", script],
            cwd=self.path,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        foreign = [line for line in answer.stdout.splitlines() if not Path(line).is_relative_to(self.path)]
        if foreign or len(answer.stdout.splitlines()) != len(PACKAGES):
            raise WrongCode(f"imported from elsewhere than {self.path}: {foreign}")
