"""`make mutants [ONLY=text] [SIM_SEEDS=n]`: break the code in each way of the catalog; tests must notice.

With SIM_SEEDS, what the simulation of the whole platform notices by itself, and after how many seeds.

Exit code 0: every mutant was caught (with SIM_SEEDS: whatever was). 1: one survived. 2: a mutant is stale, or what ran
proves nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from mutants.anchors import node_id, node_ids, target_of
from mutants.catalog import MUTANTS
from mutants.catch import SIMULATION, Outcome, Unusable, attack, run
from mutants.mutant import Mutant, StaleMutant
from mutants.tree import WrongCode


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    options = _parser().parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in f"{mutant.name} {mutant.anchor}"]
    if not chosen:
        print(f"no mutant's name or anchor contains {options.only!r}")
        return 2
    began = time.monotonic()
    try:
        outcomes, unusable = prove(chosen, options.limit, sound=not options.unchecked, seeds=options.seeds)
    except (StaleMutant, Unusable, WrongCode) as error:
        print(error)
        return 2
    survivors = [outcome.mutant.name for outcome in outcomes if outcome.catch is None]
    caught, seconds = len(outcomes) - len(survivors), time.monotonic() - began
    print(f"{len(chosen)} mutants, {caught} caught, {seconds:.0f} s")
    if survivors:
        print("SURVIVED:", *survivors)
    if unusable:
        print("UNUSABLE:", *unusable)
        return 2
    return 1 if survivors and not options.seeds else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="only mutants whose name or anchor contains this")
    parser.add_argument("--seeds", type=int, default=0, help="try so many seeds of the simulation, and nothing else")
    parser.add_argument("--limit", type=float, default=180, help="seconds that one test command, or one seed, may take")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests on sound code first")
    return parser


def prove(
    mutants: Sequence[Mutant], limit_s: float, *, sound: bool = True, seeds: int = 0
) -> tuple[list[Outcome], list[str]]:
    """Attack with every mutant. What came of it, and the names of those that prove nothing.

    Raises:
        StaleMutant, Unusable, WrongCode: nothing at all is proven.
    """
    check_fit(mutants)
    if sound:
        _check_sound(mutants, limit_s, seeds)
    outcomes: list[Outcome] = []
    unusable = []
    for mutant in mutants:
        try:
            outcomes.append(attack(mutant, limit_s, seeds))
            print(_told(outcomes[-1], seeds), flush=True)
        except Unusable as error:
            unusable.append(mutant.name)
            print(f"UNUSABLE {error}", flush=True)
    return outcomes, unusable


def check_fit(mutants: Sequence[Mutant]) -> None:
    """Every function and every test that they name is there. Raises StaleMutant, with all that are not."""
    stale = []
    for mutant in mutants:
        try:
            target_of(mutant)
            node_ids(mutant)
        except StaleMutant as error:
            stale.append(str(error))
    if stale:
        raise StaleMutant("\n".join(stale))


def _check_sound(mutants: Sequence[Mutant], limit_s: float, seeds: int) -> None:
    """Every test must pass while nothing is broken, or it proves nothing."""
    tests = [node_id(SIMULATION)] if seeds else sorted({test for mutant in mutants for test in node_ids(mutant)})
    catch = run(tests, limit_s * max(5, seeds), seeds=seeds or 1).catch
    if catch is not None:
        raise Unusable(f"fails though nothing is broken: {catch.test}: {catch.error}")


def _told(outcome: Outcome, seeds: int) -> str:
    name, catch = outcome.mutant.name, outcome.catch
    if catch is None:
        calls = f"{outcome.calls} calls of what is broken, " if seeds else ""
        return f"SURVIVED {name} ({calls}{outcome.seconds} s)"
    after = f", seed {catch.seeds}" if seeds else ""
    test = catch.test.rpartition("::")[2]
    return f"caught {name} by {test} ({outcome.seconds} s{after}): {catch.line or catch.error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
