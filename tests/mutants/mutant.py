"""A hand-written mutant: a Python function that takes a function of the platform and returns a broken one in its place.

    @mutant("tistream_sorter:SliceMap._connects", invariants=(2,), catchers=("test_no_watermark_passes_…",))
    def gap_skipped(original):
        \"\"\"A row of the slice's own region connects across a gap in its log.\"\"\"
        def broken(self, at, row): …
        return broken

The catalog is imported before the platform: its modules import nothing of it, and its functions do so when they run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


class StaleMutant(Exception):
    """The function that a mutant breaks, or a test that must notice, is not there or is there twice."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to break the code.

    anchor: `package:qualname`, a function or method that is defined once in the package; where several modules define
    it, `package:module.qualname`. catchers: names of test functions, the cheapest first.
    """

    name: str
    anchor: str
    invariants: tuple[int, ...]
    catchers: tuple[str, ...]
    breaks: str
    make: Callable[[Function], Function]

    @property
    def where(self) -> str:
        """`module:name` of its definition."""
        return f"{self.make.__module__}:{self.name}"


REGISTERED: list[Mutant] = []  # in the order of their definitions


def mutant(
    anchor: str, *, invariants: tuple[int, ...], catchers: tuple[str, ...]
) -> Callable[[Callable[[Function], Function]], Callable[[Function], Function]]:
    """Put the function below into the catalog, under its own name; its docstring says what is wrong then."""

    def registered(make: Callable[[Function], Function]) -> Callable[[Function], Function]:
        breaks = " ".join((make.__doc__ or "").split()).rstrip(".")
        REGISTERED.append(Mutant(make.__name__, anchor, invariants, catchers, breaks, make))
        return make

    return registered


def defined(where: str) -> Mutant:
    """The mutant that is defined there (Mutant.where)."""
    importlib.import_module(where.partition(":")[0])
    return next(mutant for mutant in REGISTERED if mutant.where == where)
