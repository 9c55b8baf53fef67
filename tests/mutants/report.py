"""The table of docs/mutants.md. `python -m mutants.report` writes it; a test holds the page against it."""

from __future__ import annotations

from collections.abc import Sequence

from mutants.catalog import MUTANTS
from mutants.mutant import Mutant
from mutants.tree import ROOT

PAGE = ROOT / "docs" / "mutants.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


def table(mutants: Sequence[Mutant]) -> str:
    """Invariant by invariant, each mutant once: under the first that it breaks."""
    lines = ["| invariants | mutant | what is wrong then | noticed by |", "|---|---|---|---|"]
    for mutant in sorted(mutants, key=lambda mutant: (mutant.invariants, mutant.name)):
        numbers = ", ".join(map(str, mutant.invariants))
        tests = ", ".join(f"`{catcher.partition('[')[0]}`" for catcher in mutant.catchers)
        breaks = mutant.breaks.replace("`", "")
        lines.append(f"| {numbers} | {mutant.name} | {breaks} | {tests} |")
    return "\n".join(lines)


def with_table(page: str, mutants: Sequence[Mutant]) -> str:
    """The page with this table between its marks."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{table(mutants)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(), MUTANTS))
