"""The last thing that an answer says: where it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """`resolved` where a commit_ts ends; `continue` inside one, where resolved_ts is None."""

    cursor: str
    resolved_ts: int | None

    @property
    def type(self) -> str:
        return "continue" if self.resolved_ts is None else "resolved"
