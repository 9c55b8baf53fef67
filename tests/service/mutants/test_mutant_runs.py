"""Mutants as they are run, each in a process of its own: some are caught, and what proves nothing is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants import specimens
from mutants.catalog import MUTANTS
from mutants.catch import Unusable, attack, run
from mutants.mutant import defined
from support.effort import cases

LIMIT_S = 600  # only a test that hangs meets it
OF_SEVERAL_KINDS = (  # a function, a method, a property
    "new_owner_counts_old_silence",
    "collect_strangers_deleted",
    "window_unbounded",
)


@pytest.mark.parametrize("name", cases(OF_SEVERAL_KINDS[:1], OF_SEVERAL_KINDS[1:]))  # all: `make soak ONLY=mutants`
def test_a_broken_function_is_caught(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    outcome = attack(mutant, LIMIT_S)
    assert outcome.catch is not None
    assert mutant.catchers[0] in outcome.catch.test
    assert outcome.catch.line.startswith("assert")
    assert outcome.calls > 0


def test_what_breaks_nothing_survives() -> None:
    outcome = attack(defined(f"{specimens.__name__}:harmless"), LIMIT_S)
    assert outcome.catch is None
    assert outcome.calls > 0


@pytest.mark.parametrize(
    ("name", "why"), [("never_called", "never calls tistream:cursor.decode"), ("no_program", "is no program")]
)
def test_what_proves_nothing_is_an_error(name: str, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        attack(defined(f"{specimens.__name__}:{name}"), LIMIT_S)


def test_a_test_that_hangs_ends_and_counts_as_one_that_noticed(tmp_path: Path) -> None:
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text("import time\n\n\ndef test_it():\n    time.sleep(600)\n")
    catch = run([str(hanging)], 4).catch
    assert catch is not None
    assert catch.error == "no end within 4 s"


def test_tests_that_cannot_be_run_are_an_error() -> None:
    with pytest.raises(Unusable):
        run(["tests/no_such_test.py"], LIMIT_S)
