"""`make mutants-mechanical [ONLY=module] [SAMPLE=n] [SEED=n]`: mutants made by cosmic-ray from the pure modules' code.

Of each module so many places in its code are drawn by the seed, and of each place one mutant. cosmic-ray writes each
into a copy of the tree and runs the module's unit tests there. A mutant that means the same as the code does is no
mutant: one in an annotation, an assertion, a message of an error, or in how a dataclass is declared.

Prints a table of scores; the survivors' diffs are written to `.build/mutants/survivors.diff`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import TestOutcome, WorkItem, WorkResult

from mutants.anchors import test_file
from mutants.catch import Unusable
from mutants.pure import MODULES, meaning_of, path_of
from mutants.tree import ROOT, copied, environment

REPORTS = ROOT / ".build" / "mutants"
LIMIT_FACTOR, LIMIT_MORE_S = 4, 10  # a test run may take so many times what it takes on sound code, and so much more

_COMPARED = re.compile(r".*/ReplaceComparisonOperator_([A-Za-z]+)_([A-Za-z]+)")
_OF_IDENTITY = {"Is", "IsNot", "In", "NotIn"}


@dataclass(frozen=True, slots=True)
class Score:
    """Of one module. `survivors` are diffs."""

    module: str
    mutants: int
    survivors: tuple[str, ...]
    seconds: float

    @property
    def killed(self) -> int:
        return self.mutants - len(self.survivors)


def main(arguments: Sequence[str]) -> int:
    """See the module. Exit code 2: nothing was tried; else 0, whatever survived."""
    options = _parser().parse_args(arguments)
    chosen = [module for module in MODULES if any(part in module for part in options.only.split(","))]
    if not chosen:
        print(f"no module's name contains {options.only!r}")
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    scores = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copied(Path(folder) / "tree")
        for module in chosen:
            scores.append(score(tree, module, options.sample, options.seed))
            print(_line(scores[-1]), flush=True)
    print("\n".join(table(scores)))
    survivors = "\n\n".join(diff for one in scores for diff in one.survivors)
    (REPORTS / "survivors.diff").write_text(survivors + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants-mechanical", description=__doc__)
    parser.add_argument("--only", default="", help="only modules whose names contain one of these, separated by commas")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each module; 0: one of every place")
    parser.add_argument("--seed", type=int, default=1, help="which of them")
    return parser


def score(tree: Path, module: str, sample: int, seed: int) -> Score:
    """Try mutants of one module in the copy `tree`.

    Raises:
        CalledProcessError: its tests fail though nothing is broken, or cosmic-ray does.
        Unusable: cosmic-ray did not run a mutant.
    """
    began = time.monotonic()
    path = path_of(module)
    tests = [str(test_file(name).relative_to(ROOT)) for name in MODULES[module]]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "mutants.plugin", *tests]
    _run(command, tree)
    limit_s = LIMIT_FACTOR * (time.monotonic() - began) + LIMIT_MORE_S
    config, session = REPORTS / f"{module}.toml", REPORTS / f"{module}.sqlite"
    session.unlink(missing_ok=True)
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{path}"\ntimeout = {limit_s:.0f}\nexcluded-modules = []\n'
        f'test-command = "{" ".join(command)}"\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    cosmic_ray = [sys.executable, "-m", "cosmic_ray.cli"]
    _run([*cosmic_ray, "init", str(config), str(session)], tree)
    work = WorkDB(session, WorkDB.Mode.open)
    try:
        kept = drawn((tree / path).read_text(), work.work_items, sample, Random(f"{seed} {module}"))
        work.clear()
        work.add_work_items(kept)
        _run([*cosmic_ray, "exec", str(config), str(session)], tree)
        return Score(module, len(kept), _survivors(work.results), round(time.monotonic() - began, 1))
    finally:
        work.close()


def _run(command: Sequence[str], tree: Path) -> None:
    subprocess.run(command, cwd=tree, env=environment(tree), check=True, stdout=subprocess.DEVNULL)


def _survivors(results: Iterable[tuple[str, WorkResult]]) -> tuple[str, ...]:
    diffs = []
    for job, one in results:
        if one.test_outcome not in (TestOutcome.KILLED, TestOutcome.SURVIVED):
            raise Unusable(f"cosmic-ray did not run mutant {job}: {one.output}")
        if one.test_outcome == TestOutcome.SURVIVED:
            diffs.append(str(one.diff))
    return tuple(sorted(diffs))


def drawn(code: str, items: Iterable[WorkItem], sample: int, random: Random) -> list[WorkItem]:
    """`sample` places of the code, and of each one mutant that means something else than the code; 0: every place."""
    places: dict[tuple[int, int], list[WorkItem]] = {}
    for item in items:
        (one,) = item.mutations
        if _sensible(one.operator_name):
            places.setdefault(tuple(one.start_pos), []).append(item)
    ordered = [places[place] for place in sorted(places)]
    random.shuffle(ordered)
    meaning, kept = meaning_of(code), list[WorkItem]()
    for several in ordered:
        several.sort(key=lambda item: (item.mutations[0].operator_name, item.mutations[0].occurrence))
        random.shuffle(several)
        found = next((item for item in several if _means_else(code, meaning, item)), None)
        if found is not None:
            kept.append(found)
        if len(kept) == sample:
            break
    return kept


def _sensible(operator: str) -> bool:
    """Not `x is y` for `x < y`: that fails wherever it is run, or means the same as `==`."""
    compared = _COMPARED.fullmatch(operator)
    both = set(compared.groups()) if compared else set()
    return both.isdisjoint(_OF_IDENTITY) or both in ({"Is", "IsNot"}, {"In", "NotIn"})


def _means_else(code: str, meaning: str, item: WorkItem) -> bool:
    (one,) = item.mutations
    changed = mutate_code(code, get_operator(one.operator_name)(**one.operator_args), one.occurrence)
    if changed is None:
        return False
    try:
        return meaning_of(changed) != meaning
    except SyntaxError:
        return False


def table(scores: Sequence[Score]) -> list[str]:
    """The scores as Markdown."""
    every = Score("all", sum(one.mutants for one in scores), tuple(d for one in scores for d in one.survivors), 0)
    head = ["| module | mutants | killed | survived | score |", "|---|---|---|---|---|"]
    return head + [_line(one) for one in [*scores, every]]


def _line(one: Score) -> str:
    share = f"{100 * one.killed / one.mutants:.0f} %" if one.mutants else "none"
    return f"| {one.module} | {one.mutants} | {one.killed} | {len(one.survivors)} | {share} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
