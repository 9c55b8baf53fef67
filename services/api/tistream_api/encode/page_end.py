"""The position that the last line of an answer states, before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The position that an answer states at its end. It is of type `resolved` after all events of a commit_ts. It is of
    type `continue` between two events of one commit_ts; then it has no resolved_ts. For an answer that compares two
    timestamps, `between` has these, and the type is `end`; there is no cursor once all events were sent."""

    cursor: str | None
    resolved_ts: int | None
    between: tuple[int, int] | None = None

    @property
    def type(self) -> str:
        if self.between is not None:
            return "end"
        return "continue" if self.resolved_ts is None else "resolved"

    def stamps(self) -> dict[str, int | None]:
        """The timestamps of the position, by the names that they have in JSON."""
        if self.between is not None:
            return {"from": self.between[0], "to": self.between[1]}
        return {"resolved_ts": self.resolved_ts}
