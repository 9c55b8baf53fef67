"""Where the functions that mutants break, and the tests that must notice, are defined. By names: code may move."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutants.mutant import Mutant, StaleMutant
from mutants.tree import FOLDERS, ROOT

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Target:
    """A function: `qualname` in the module named `module`."""

    module: str
    qualname: str


def target_of(mutant: Mutant) -> Target:
    """The one function that the mutant's anchor names. Raises StaleMutant."""
    package, _, wanted = mutant.anchor.partition(":")
    found = [
        target
        for target in _definitions(package)
        if wanted in (target.qualname, f"{target.module.rpartition('.')[2]}.{target.qualname}")
    ]
    if len(found) == 1:
        return found[0]
    where = "nowhere" if not found else f"in {', '.join(target.module for target in found)}"
    raise StaleMutant(f"{mutant.name}: {mutant.anchor} is defined {where}, not once")


@cache
def _definitions(package: str) -> tuple[Target, ...]:
    found: dict[Target, None] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found |= dict.fromkeys(Target(module, name) for name in _functions(ast.parse(path.read_text()).body, ""))
    return tuple(found)


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for one in body:
        if isinstance(one, Definition):
            yield prefix + one.name
        elif isinstance(one, ast.ClassDef):
            yield from _functions(one.body, f"{prefix}{one.name}.")


def node_ids(mutant: Mutant) -> list[str]:
    """The mutant's catchers as pytest wants them. Raises StaleMutant."""
    out = []
    for catcher in mutant.catchers:
        try:
            out.append(node_id(catcher))
        except StaleMutant as error:
            raise StaleMutant(f"{mutant.name}: {error}") from error
    return out


def node_id(test: str) -> str:
    """`name` or `name[parameters]` of a test function, or the name of a test class, as pytest wants it. Raises
    StaleMutant unless exactly one file defines it."""
    name, bracket, rest = test.partition("[")
    found = _tests().get(name, [])
    if len(found) != 1:
        where = "nowhere" if not found else f"in {', '.join(found)}"
        raise StaleMutant(f"the test {name} is defined {where}, not once")
    return found[0] + bracket + rest


@cache
def _tests() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = str(path.relative_to(ROOT))
        for name, where in _collected(ast.parse(path.read_text()).body):
            found.setdefault(name, []).append(f"{file}::{where}")
    return found


def _collected(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Test functions and classes of a module; a state machine's test is `TestIt = Machine.TestCase`."""
    for one in body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            if one.targets[0].id.startswith("Test"):
                yield one.targets[0].id, one.targets[0].id
        elif isinstance(one, ast.ClassDef) and one.name.startswith("Test"):
            yield one.name, one.name
            yield from ((name, f"{one.name}::{where}") for name, where in _collected(one.body))
        elif isinstance(one, Definition) and one.name.startswith("test_"):
            yield one.name, one.name


def test_file(name: str) -> Path:
    """The one test file of that name, in whatever folder. Raises StaleMutant."""
    found = sorted((ROOT / "tests").rglob(name))
    if len(found) != 1:
        raise StaleMutant(f"there are {len(found)} test files named {name}, not one")
    return found[0]
