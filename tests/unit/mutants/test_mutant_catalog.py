"""The hand-written mutants fit the code and the tests by their names, and the page shows all of them."""

from __future__ import annotations

import re
import tomllib
from collections import Counter

import pytest

from mutants import specimens
from mutants.anchors import Target, node_id, node_ids, target_of
from mutants.anchors import test_file as file_named
from mutants.catalog import MUTANTS
from mutants.mutant import Mutant, StaleMutant, defined
from mutants.pure import MODULES, meaning_of, path_of
from mutants.report import PAGE, page
from mutants.tree import ROOT

INVARIANTS = {int(number) for number in re.findall(r"^\| (\d+) \|", (ROOT / "docs/invariants.md").read_text(), re.M)}
IMPORTANT = {1, 2, 3, 5, 7, 11, 12, 18, 21, 22}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_finds_its_function_and_its_tests(mutant: Mutant) -> None:
    assert target_of(mutant).module.partition(".")[0] == mutant.anchor.partition(":")[0]
    assert len(node_ids(mutant)) == len(mutant.catchers) > 0
    assert mutant.breaks
    assert set(mutant.invariants) <= INVARIANTS


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


def test_every_invariant_is_attacked_and_the_important_ones_more_than_once() -> None:
    attacks = Counter(number for mutant in MUTANTS for number in mutant.invariants)
    assert set(attacks) == INVARIANTS
    assert {number for number in IMPORTANT if attacks[number] < 3} == set()


def test_the_page_shows_every_mutant() -> None:
    """If not: `PYTHONPATH=tests .venv/bin/python -m mutants.report`."""
    assert PAGE.read_text() == page(MUTANTS)


def test_the_code_that_an_invariant_names_is_there() -> None:
    """A rename must follow into tests/mutants/invariants.toml, from which docs/invariants.md is made."""
    folders = ("shared", "services", "simulator", "tools", "client")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    lost = []
    for invariant in tomllib.loads((ROOT / "tests/mutants/invariants.toml").read_text())["invariant"]:
        for file, names in re.findall(r"`([\w/]+\.py)`(?: \(((?:`\w+`(?:, )?)+))?", invariant["code"]):
            sources = [path.read_text() for path in files if path.as_posix().endswith(f"/{file}")]
            lost += [f"{invariant['number']}: {file}"] if not sources else []
            lost += [
                f"{invariant['number']}: {name} of {file}"
                for name in re.findall(r"\w+", names)
                if not any(
                    re.search(rf"\b(?:def|class) {name}\b|^ *{name}\b *[:=]", source, re.MULTILINE)
                    for source in sources
                )
            ]
    assert lost == []


def specimen(name: str) -> Mutant:
    return defined(f"{specimens.__name__}:{name}")


def test_a_function_that_is_not_there_once_makes_a_mutant_stale() -> None:
    with pytest.raises(StaleMutant, match=r"nowhere: tistream:cursor\.no_such_function is defined nowhere"):
        target_of(specimen("nowhere"))


def test_so_does_a_test_that_is_not_there_once() -> None:
    with pytest.raises(StaleMutant, match="test_that_does_not_exist is defined nowhere, not once"):
        node_ids(specimen("noticed_by_nobody"))
    with pytest.raises(StaleMutant, match="test_round_trip is defined in tests/"):
        node_id("test_round_trip")


def test_a_module_tells_functions_of_one_name_apart() -> None:
    assert target_of(specimen("harmless")) == Target("tistream.read.cursor", "_check")


def test_parameters_and_state_machines_are_found() -> None:
    assert node_id("test_every_mutant_finds_its_function_and_its_tests[x]").endswith("_its_tests[x]")
    assert node_id("TestCollecting").endswith("test_consumed_model.py::TestCollecting")


@pytest.mark.parametrize("module", MODULES)
def test_the_tool_finds_each_module_and_its_tests(module: str) -> None:
    assert (ROOT / path_of(module)).is_file()
    assert [file_named(name).suffix for name in MODULES[module]] == [".py"] * len(MODULES[module])


@pytest.mark.parametrize(
    ("code", "changed", "same"),
    [
        ("def f(a: int | None): return a", "def f(a: int - None): return a", True),
        ("assert x > 1", "assert x >= 1", True),
        ("raise E(f'{a + 1}')", "raise E(f'{a - 1}')", True),
        ("zip(a, b, strict=True)", "zip(a, b, strict=False)", True),
        ("@dataclass(frozen=True)\nclass A: a: int = 1", "@dataclass(frozen=False)\nclass A: a: str = 1", True),
        ("class A(Protocol):\n @property\n def f(self): ...", "class A(Protocol):\n def f(self): ...", True),
        ("def f(a=1): return a", "def f(a=2): return a", False),
        ("x = a + 1", "x = a - 1", False),
        ("class A: a: int = 1", "class A: a: int = 2", False),
    ],
)
def test_what_decides_nothing_is_no_mutant(code: str, changed: str, same: bool) -> None:
    assert (meaning_of(code) == meaning_of(changed)) is same
