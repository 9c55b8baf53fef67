"""docs/mutants.md: what each mutant breaks, and what noticed."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.catch import Outcome

OPEN = {  # invariants of which a part has no code yet, and so nothing to break
    12: "source files are not deleted yet",
    20: "there are no tokens and no metering yet",
}

HEAD = """# Mutation proof

Written by `make mutants`; do not edit. Each line is one way to break the code on purpose (`tests/mutants/catalog`), the
invariants that it attacks, the first test that noticed, and what it took: seconds from the start of pytest, and of a
property test the number of examples up to the one that failed. The mutants run on a copy of the tree; the same tests
pass there before anything is broken. `make mutants ONLY=text` runs those with that text in their name or file;
`make mutants SIM_SEEDS=n` tries the simulation alone (`mutants-simulation.md`).
"""


SEEDS_HEAD = """# What the simulation notices by itself

Written by `make mutants SIM_SEEDS=n`; do not edit. Of the mutants in `mutants.md` those that a whole platform can feel,
against the deterministic simulation alone: after how many seeds, counted from 1, something was noticed, and what.
"""


def simulated(outcomes: Sequence[Outcome], seconds: float, seeds: int) -> str:
    """The page of a run against the simulation alone."""
    caught = sum(outcome.catch is not None for outcome in outcomes)
    lines = [
        SEEDS_HEAD,
        f"{len(outcomes)} mutants, {caught} noticed within {seeds} seeds, in {seconds:.0f} s.",
        "",
        "| mutant | invariants | what is wrong then | seeds | noticed |",
        "|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        mutant, catch = outcome.mutant, outcome.catch
        numbers = ", ".join(map(str, mutant.invariants))
        found = f"{catch.examples} | {_cell(catch.error)}" if catch else f"none of {seeds} |"
        lines.append(f"| {mutant.name} | {numbers} | {_cell(mutant.breaks)} | {found} |")
    return "\n".join([*lines, ""])


def document(outcomes: Sequence[Outcome], seconds: float, jobs: int) -> str:
    """The whole page."""
    caught = [outcome for outcome in outcomes if outcome.catch is not None]
    lines = [
        HEAD,
        f"{len(outcomes)} mutants, {len(caught)} caught, in {seconds:.0f} s with {jobs} at a time.",
        "",
        "| mutant | invariants | what is wrong then | noticed by | examples | seconds |",
        "|---|---|---|---|---|---|",
        *map(_line, outcomes),
        "",
        "## By invariant",
        "",
        "| invariant | mutants |",
        "|---|---|",
        *_by_invariant(outcomes),
        "",
    ]
    return "\n".join(lines)


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


def _by_invariant(outcomes: Sequence[Outcome]) -> list[str]:
    out = []
    for number in range(1, 25):
        names = [outcome.mutant.name for outcome in outcomes if number in outcome.mutant.invariants]
        open_part = [f"(open work: {OPEN[number]})"] if number in OPEN else []
        out.append(f"| {number} | {', '.join([*names, *open_part])} |")
    return out
