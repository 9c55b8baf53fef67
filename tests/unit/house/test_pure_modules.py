"""What is said to decide without I/O is held to it by an import contract: the marks of docs/architecture.md, the
docstrings that say "Pure", and the contracts of pyproject.toml agree."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = sorted(path for folder in ("shared", "services", "simulator") for path in ROOT.glob(f"{folder}/**/*.py"))
_STEP = re.compile(r"^\| \d+a? \|")
_FILE = re.compile(r"`([\w./]+)`")


def module_of(path: Path) -> str:
    """The module's name: below services/NAME, or below shared."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[2:] if parts[0] == "services" else parts[1:]).removesuffix(".__init__")


@cache
def contracted() -> frozenset[str]:
    """The packages and modules that may not import what does I/O or waits."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    pure = [one for one in contracts if one["type"] == "forbidden" and "threading" in one["forbidden_modules"]]
    return frozenset(name for one in pure for name in one["source_modules"])


def is_contracted(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in contracted())


def says_pure(path: Path) -> bool:
    source = path.read_text()
    return "Pure" in source and re.search(r"\bPure\b", ast.get_docstring(ast.parse(source)) or "") is not None


def marks() -> dict[str, str]:
    """By module of the journey's table: its mark. In a cell, `;` separates groups; a group has one mark for all of its
    files, or one for each."""
    out: dict[str, str] = {}
    for line in (ROOT / "docs/architecture.md").read_text().splitlines():
        if not _STEP.match(line):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        files, given = ([group.strip() for group in cell.split(";")] for cell in cells[-2:])
        given = given * len(files) if len(given) == 1 else given
        assert len(files) == len(given), f"step {cells[0]}: {len(files)} groups of files have {len(given)} of marks"
        first = _FILE.findall(cells[-2])[0].partition("/")[0]  # the package of the row, for files without one
        for names, mark in zip((_FILE.findall(group) for group in files), given, strict=True):
            each = re.findall(r"[PI]", mark)
            each = each * len(names) if len(each) == 1 else each
            assert len(each) == len(names), f"step {cells[0]}: {names} have the marks {each}"
            for name, one in zip(names, each, strict=True):
                module = the_module(name, first)
                assert out.setdefault(module, one) == one, f"{module} is marked P and I"
    return out


def the_module(name: str, package: str) -> str:
    """The one module whose path ends with `name`: in any package if `name` says which, else in `package`."""
    suffix = f"/{name}" if name.endswith(".py") else f"/{name}/__init__.py"
    found = [path for path in SOURCES if str(path).endswith(suffix)]
    found = [path for path in found if module_of(path).startswith(f"{package}.")] if len(found) > 1 else found
    assert len(found) == 1, f"{name} is the end of {len(found)} paths"
    return module_of(found[0])


def test_the_marks_of_the_journey_are_those_of_the_contracts() -> None:
    found = marks()
    assert len(found) > 50
    wrong = {module: mark for module, mark in found.items() if (mark == "P") is not is_contracted(module)}
    assert wrong == {}, "marked P without a contract, or I with one"


def test_a_module_that_says_it_is_pure_has_a_contract() -> None:
    without = [module for path in SOURCES if says_pure(path) and not is_contracted(module := module_of(path))]
    assert without == []


def test_a_module_with_a_contract_of_its_own_is_said_to_be_pure() -> None:
    marked = {module for module, mark in marks().items() if mark == "P"}
    silent = [
        module
        for path in SOURCES
        if (module := module_of(path)) in contracted()
        and path.name != "__init__.py"
        and module not in marked
        and not says_pure(path)
    ]
    assert silent == []


def test_each_name_in_a_contract_exists() -> None:
    there = {module_of(path) for path in SOURCES} | {"tistream_verify"}
    assert contracted() - there == set()
