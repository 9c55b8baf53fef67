"""docs/mutants.md: what each mutant breaks, and what noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mutants.catch import Outcome
from mutants.mutant import Mutant

WHOLE_RUN = "The last whole run"

HEAD = """# Mutation proof

Written by `make mutants`; do not edit. Each line is one way to break the code on purpose (`tests/mutants/catalog`), the
invariants that it attacks, the first test that noticed, and what it took: seconds from the start of pytest, and of a
property test the number of examples up to the one that failed. The mutants run on a copy of the tree; the same tests
pass there before anything is broken. `make mutants ONLY=text` runs those with that text in their name or file, and
leaves the other lines; `make mutants SIM_SEEDS=n` tries the simulation alone (`mutants-simulation.md`).
"""


SEEDS_HEAD = """# What the simulation notices by itself

Written by `make mutants SIM_SEEDS=n`; do not edit. Of the mutants in `mutants.md` those that a whole platform can feel,
against the deterministic simulation alone: after how many seeds, counted from 1, something was noticed, and what.
"""


def document(mutants: Sequence[Mutant], outcomes: Sequence[Outcome], before: str, took: str) -> str:
    """docs/mutants.md. `mutants` is the catalog; of those that were not run the line of the page `before` stays."""
    told = re.search(f"{WHOLE_RUN}.*", before)
    if len(outcomes) == len(mutants) or told is None:
        last = f"{WHOLE_RUN}, of {len(outcomes)} mutants, took {took}."
    else:
        last = told[0]
    lines = _lines(mutants, outcomes, before, _line)
    caught = sum("**nothing**" not in line for line in lines)
    return _page(
        [HEAD, f"{len(lines)} mutants, {caught} caught.", last, ""],
        ["| mutant | invariants | what is wrong then | noticed by | examples | seconds |", "|---|---|---|---|---|---|"],
        lines,
        ["", "## By invariant", "", "| invariant | mutants |", "|---|---|", *_by_invariant(mutants)],
    )


def simulated(mutants: Sequence[Mutant], outcomes: Sequence[Outcome], before: str, seeds: int) -> str:
    """docs/mutants-simulation.md, likewise."""
    lines = _lines(mutants, outcomes, before, lambda outcome: _seeds_line(outcome, seeds))
    caught = sum("| none of " not in line for line in lines)
    return _page(
        [SEEDS_HEAD, f"{len(lines)} of {len(mutants)} mutants tried, {caught} noticed.", ""],
        ["| mutant | invariants | what is wrong then | seeds | noticed |", "|---|---|---|---|---|"],
        lines,
        [],
    )


def _page(*parts: Sequence[str]) -> str:
    return "\n".join([line for part in parts for line in part] + [""])


def _lines(
    mutants: Sequence[Mutant], outcomes: Sequence[Outcome], before: str, line_of: Callable[[Outcome], str]
) -> list[str]:
    """One line a mutant, in the catalog's order: the newest that is known."""
    known = {line[2:].partition(" |")[0]: line for line in before.splitlines() if line.startswith("| ")}
    known |= {outcome.mutant.name: line_of(outcome) for outcome in outcomes}
    return [known[mutant.name] for mutant in mutants if mutant.name in known]


def _seeds_line(outcome: Outcome, seeds: int) -> str:
    mutant, catch = outcome.mutant, outcome.catch
    numbers = ", ".join(map(str, mutant.invariants))
    found = f"{catch.examples} | {_cell(catch.error)}" if catch else f"none of {seeds} |"
    return f"| {mutant.name} | {numbers} | {_cell(mutant.breaks)} | {found} |"


def _line(outcome: Outcome) -> str:
    mutant, catch = outcome.mutant, outcome.catch
    numbers = ", ".join(map(str, mutant.invariants))
    begin = f"| {mutant.name} | {numbers} | {_cell(mutant.breaks)} |"
    if catch is None:
        return f"{begin} **nothing** | | {outcome.seconds} |"
    name = catch.test.rpartition("::")[2].partition("[")[0]
    how = f"`{name}`: `{_code(catch.line or catch.error)}`"
    return f"{begin} {how} | {catch.examples or ''} | {catch.seconds} |"


def _cell(text: str) -> str:
    """Text that cannot break out of a table cell, and is no code span that names things."""
    return _code(text).replace("<", "&lt;").replace("*", "\\*")


def _code(text: str) -> str:
    flat = " ".join(text.replace("`", "'").split())
    return (flat if len(flat) <= 140 else flat[:139] + "…").replace("|", "\\|")


def _by_invariant(mutants: Sequence[Mutant]) -> list[str]:
    out = []
    for number in range(1, 25):
        names = [mutant.name for mutant in mutants if number in mutant.invariants]
        out.append(f"| {number} | {', '.join(names)} |")
    return out
