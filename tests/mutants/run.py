"""`make mutants [ONLY=text] [SIM_SEEDS=n]`: break a copy of the code in every way of the catalog; tests must notice.

With SIM_SEEDS, what the simulation of the whole platform notices by itself, and after how many seeds.

Exit code 0: every mutant was caught (with SIM_SEEDS: whatever was). 1: one survived. 2: a mutant is stale, or the tests
fail without any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from mutants import report
from mutants.catalog.everything import MUTANTS, SIMULATED
from mutants.catch import SIMULATION, Catch, Outcome, Unusable, attack, run
from mutants.mutant import Mutant, StaleMutant
from mutants.tree import ROOT, Tree, WrongCode

DOCUMENT = ROOT / "docs" / "mutants.md"
SEEDS_DOCUMENT = ROOT / "docs" / "mutants-simulation.md"


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    options = _parser().parse_args(arguments)
    offered = [mutant for mutant in MUTANTS if not options.seeds or mutant.name in SIMULATED]
    chosen = [mutant for mutant in offered if options.only in f"{mutant.name} {mutant.file}"]
    if options.by:
        chosen = [replace(mutant, catchers=tuple(options.by)) for mutant in chosen]
    if not chosen:
        print(f"no mutant's name or file contains {options.only!r}")
        return 2
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [Tree.copied(Path(folder) / str(number)) for number in range(options.jobs)]
        try:
            outcomes = prove(trees, chosen, options.limit, sound=not options.unchecked, seeds=options.seeds)
        except (StaleMutant, Unusable, WrongCode) as error:
            print(error)
            return 2
    survivors = [outcome.mutant.name for outcome in outcomes if outcome.catch is None]
    seconds = time.monotonic() - began
    print(f"{len(outcomes)} mutants, {len(outcomes) - len(survivors)} caught, {seconds:.0f} s")
    if not options.by:
        times = os.times()
        worked = times.children_user + times.children_system
        _write(offered, outcomes, options.seeds, f"{seconds:.0f} s, and {worked:.0f} s of processor time")
    if survivors:
        print("SURVIVED:", *survivors)
    return 1 if survivors and not options.seeds else 0


def _write(offered: Sequence[Mutant], outcomes: Sequence[Outcome], seeds: int, took: str) -> None:
    path = SEEDS_DOCUMENT if seeds else DOCUMENT
    before = path.read_text() if path.exists() else ""
    if seeds:
        path.write_text(report.simulated(offered, outcomes, before, seeds))
    else:
        path.write_text(report.document(offered, outcomes, before, took))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="only mutants whose name or file contains this")
    parser.add_argument("--seeds", type=int, default=0, help="try so many seeds of the simulation, and nothing else")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--limit", type=float, default=180, help="seconds that one test command may take")
    parser.add_argument("--by", nargs="*", help="try these tests instead of the mutant's own")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests on sound code first")
    return parser


def prove(
    trees: Sequence[Tree], mutants: Sequence[Mutant], limit_s: float, *, sound: bool = True, seeds: int = 0
) -> list[Outcome]:
    """Attack with every mutant, as many at a time as there are trees.

    Raises:
        StaleMutant, Unusable, WrongCode: as they say; nothing is proven then.
    """
    _check_fit(trees[0], mutants)
    for tree in trees:
        tree.prove()
    if sound:
        _check_sound(trees, mutants, limit_s, seeds)
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutant: Mutant) -> Outcome:
        tree = free.get()
        try:
            outcome = attack(tree, mutant, limit_s, seeds)
        finally:
            free.put(tree)
        print(_told(outcome), flush=True)
        return outcome

    pool = ThreadPoolExecutor(len(trees))
    try:
        return list(pool.map(one, mutants))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error the rest would be in vain


def _check_fit(tree: Tree, mutants: Sequence[Mutant]) -> None:
    stale = []
    for mutant in mutants:
        try:
            mutant.applied(_source(tree, mutant))
        except StaleMutant as error:
            stale.append(str(error))
    if stale:
        raise StaleMutant("\n".join(stale))


def _source(tree: Tree, mutant: Mutant) -> str:
    path = tree.path / mutant.file
    if not path.is_file():
        raise StaleMutant(f"{mutant.name}: there is no {mutant.file}")
    return path.read_text()


def _check_sound(trees: Sequence[Tree], mutants: Sequence[Mutant], limit_s: float, seeds: int) -> None:
    """Every test must pass while nothing is broken, or it proves nothing."""
    if seeds:
        catch = run(trees[0], [SIMULATION], limit_s * 5, seeds=seeds)
        if catch is not None:
            raise Unusable(f"fails though nothing is broken: {catch.test}: {catch.error}")
        return
    tests = sorted({test for mutant in mutants for catcher in mutant.catchers for test in catcher.split()})
    shares = [tests[at :: len(trees)] for at in range(len(trees))]

    def one(pair: tuple[Tree, list[str]]) -> Catch | None:
        tree, share = pair
        return run(tree, share, limit_s * 5) if share else None

    with ThreadPoolExecutor(len(trees)) as pool:
        for catch in pool.map(one, zip(trees, shares, strict=True)):
            if catch is not None:
                raise Unusable(f"fails though nothing is broken: {catch.test}: {catch.error}")


def _told(outcome: Outcome) -> str:
    catch = outcome.catch
    if catch is None:
        return f"SURVIVED {outcome.mutant.name} ({outcome.seconds} s)"
    examples = f", {catch.examples} examples" if catch.examples else ""
    return f"caught {outcome.mutant.name} by {catch.test} ({outcome.seconds} s{examples}): {catch.line or catch.error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
