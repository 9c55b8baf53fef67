"""The end of an answer, with its position."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """`resolved` at the end of a commit_ts; `continue` inside one, where there is no resolved_ts."""

    cursor: str
    resolved_ts: int | None

    @property
    def type(self) -> str:
        return "continue" if self.resolved_ts is None else "resolved"
