"""Column rules: lists of patterns of column names. The last rule that matches a column decides. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tistream.arrays import Bools
from tistream.errors import InvalidRequest
from tistream.rules.pattern import Pattern, parse_part


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """Column rules as (includes, pattern), in the order in which they were written. Columns are compared without regard
    to case."""

    rules: tuple[tuple[bool, Pattern], ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> ColumnRules:
        """Parse rules such as `id`, `*` or `!secret`. Raises InvalidRequest, which names the rule."""
        out: list[tuple[bool, Pattern]] = []
        for text in texts:
            shown = text.strip()
            includes = not shown.startswith("!")
            try:
                pattern, rest = parse_part(shown[0 if includes else 1 :], folded=True)
            except InvalidRequest as error:
                raise InvalidRequest(f"column rule {text!r}: {error}") from None
            if rest:
                raise InvalidRequest(f"column rule {text!r}: {rest!r} follows the pattern: remove it or quote the name")
            out.append((includes, pattern))
        return cls(tuple(out))

    @property
    def literals(self) -> list[str]:
        """The names, in lower case, that rules without wildcards name."""
        return [pattern.literal for _, pattern in self.rules if pattern.literal is not None]

    def chosen(self, names: Sequence[str]) -> Bools:
        """For each column, whether the rules include it."""
        out = np.zeros(len(names), dtype=bool)
        for includes, pattern in self.rules:
            out[pattern.matches(names)] = includes
        return out
