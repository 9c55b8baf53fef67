"""Finds the name that a caller may have meant, for the texts of errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

NAMES_MAX = 10_000  # names that are compared: a database may have very many tables


def near(name: str, known: Iterable[str]) -> str | None:
    """The name among `known` that is most like `name`, without regard to case; None if no name is like it."""
    by_folded = {one.casefold(): one for one in islice(known, NAMES_MAX)}
    found = get_close_matches(name.casefold(), by_folded, 1)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` with the name that is most like `name`; empty if no name is like it."""
    found = near(name, known)
    return "" if found is None else f" (did you mean {found}?)"
