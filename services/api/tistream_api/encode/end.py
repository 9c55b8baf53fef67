"""The position at the end of an answer, before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The position at the end of an answer. It is `resolved` at the end of a commit_ts, and `continue` inside one,
    where there is no resolved_ts. With `between` it is the `end` line of a difference of two timestamps; that line has
    no cursor once all events were sent."""

    cursor: str | None
    resolved_ts: int | None
    between: tuple[int, int] | None = None

    @property
    def type(self) -> str:
        if self.between is not None:
            return "end"
        return "continue" if self.resolved_ts is None else "resolved"

    def stamps(self) -> dict[str, int | None]:
        """The timestamps of the position. The keys are the names of the members in JSON."""
        if self.between is not None:
            return {"from": self.between[0], "to": self.between[1]}
        return {"resolved_ts": self.resolved_ts}
