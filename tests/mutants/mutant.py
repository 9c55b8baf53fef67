"""One way to break the code on purpose, as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class StaleMutant(Exception):
    """The code that a mutant wants to break is not there, or not once: the mutant must be brought up to date."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` must occur exactly once in `file` (relative to the repository) and is replaced by `new`.

    `breaks`: what is wrong then, in words. `invariants`: the numbers in design.md 7 that it attacks. `catchers`:
    what should notice, the cheapest first: each is one run of pytest, its node ids separated by spaces.
    """

    name: str
    invariants: tuple[int, ...]
    breaks: str
    file: str
    old: str
    new: str
    catchers: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The broken text. Raises StaleMutant."""
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise StaleMutant(f"{self.name}: its text occurs {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    def apply(self, tree: Path) -> str:
        """Break the file in `tree`; what it was before. Raises StaleMutant."""
        path = tree / self.file
        if not path.is_file():
            raise StaleMutant(f"{self.name}: there is no {self.file}")
        before = path.read_text()
        path.write_text(self.applied(before))
        return before
