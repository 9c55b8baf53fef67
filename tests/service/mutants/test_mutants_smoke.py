"""The mutation proof itself: the catalog fits the code, a few mutants are caught, and what is not is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mutants import report
from mutants.catalog.everything import MUTANTS
from mutants.catch import Unusable, attack, run
from mutants.mutant import Mutant, StaleMutant
from mutants.run import prove
from mutants.tree import ROOT, Tree

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
LIMIT_S = 120
SPAN = "shared/tistream/model/span.py"
ROUTER = "tests/unit/dispatcher/test_router.py"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    copied = Tree.copied(tmp_path_factory.mktemp("mutants") / "tree")
    copied.prove()
    return copied


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_code_and_names_tests_that_exist(mutant: Mutant) -> None:
    compile(mutant.applied((ROOT / mutant.file).read_text()), mutant.file, "exec")
    for catcher in " ".join(mutant.catchers).split():
        path, _, name = catcher.partition("::")
        text = (ROOT / path).read_text()
        assert not name or re.search(rf"^ *def {re.escape(name.partition('[')[0])}\(", text, re.MULTILINE), catcher


def test_every_invariant_is_attacked() -> None:
    attacked = {number for mutant in MUTANTS for number in mutant.invariants}
    assert len(BY_NAME) == len(MUTANTS)
    assert attacked == set(range(1, 25))


def test_the_page_has_every_mutant() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text()
    assert [name for name in BY_NAME if f"| {name} |" not in page] == []


def test_a_few_are_caught_on_a_copy_and_the_copy_is_whole_again(tree: Tree) -> None:
    chosen = [BY_NAME[name] for name in ("watermarks-not-clipped", "gap-skipped", "claim-against-the-same-epoch")]
    before = {mutant.file: (tree.path / mutant.file).read_bytes() for mutant in chosen}
    outcomes = prove([tree], chosen, LIMIT_S)
    assert [outcome.mutant.name for outcome in outcomes if outcome.catch is None] == []
    assert {file: (tree.path / file).read_bytes() for file in before} == before


def test_a_change_that_breaks_nothing_survives(tree: Tree) -> None:
    harmless = Mutant(
        "harmless", (1,), "nothing", SPAN, "SHOWN_KEY_BYTES = 256\n", "SHOWN_KEY_BYTES = 255\n", (ROUTER,)
    )
    outcome = attack(tree, harmless, LIMIT_S)
    assert outcome.catch is None
    assert "**nothing**" in report.document([harmless], [outcome], "", "")


def test_what_proves_nothing_is_an_error(tree: Tree) -> None:
    stale = Mutant("stale", (1,), "nothing", SPAN, "no such text", "", (ROUTER,))
    with pytest.raises(StaleMutant, match="0 times"):
        attack(tree, stale, LIMIT_S)
    twice = replace(stale, old="self.start", new="self.begin")
    with pytest.raises(StaleMutant, match="not once"):
        attack(tree, twice, LIMIT_S)
    with pytest.raises(Unusable):
        attack(tree, replace(stale, old="SHOWN_KEY_BYTES = 256\n", new="SHOWN_KEY_BYTES = \n"), LIMIT_S)
    with pytest.raises(Unusable):
        run(tree, ["tests/unit/no_such_test.py"], LIMIT_S)


def test_a_test_that_hangs_ends(tree: Tree) -> None:
    hanging = tree.path / "tests" / "test_hanging.py"
    hanging.write_text("import time\n\ndef test_it():\n    time.sleep(600)\n")
    catch = run(tree, [str(hanging.relative_to(tree.path))], 4)
    assert catch is not None
    assert catch.error == "no end within 4 s"
    Path(hanging).unlink()
