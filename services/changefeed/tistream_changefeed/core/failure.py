"""Why a feed does not advance, and whether it tries again by itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tistream.wire.bulk.changefeeds import HeldBy, HeldStage

Kind = Literal["retry", "failed", "fenced"]
"""`retry`: it may pass by itself. `failed`: a person must act. `fenced`: another holder owns the shard."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of one step. The text names the object and the way out, and holds no secret. `refused`: the sink has
    answered, and refuses the credentials or the certificate; a person must act unless they are about to be rotated.
    `cause`: one of few words, by which failures are counted: for Kafka the name of its error."""

    kind: Kind
    stage: HeldStage
    object: str
    reason: str
    refused: bool = False
    cause: str = "other"

    @property
    def held_by(self) -> HeldBy:
        """As a status shows it."""
        return HeldBy(stage=self.stage, object=self.object, reason=self.reason)


class FeedFailed(Exception):
    """A step of a feed failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.object}: {failure.reason}")
        self.failure = failure


def retry(stage: HeldStage, what: str, reason: str, cause: str = "other") -> FeedFailed:
    """A failure that may pass by itself."""
    return FeedFailed(Failure("retry", stage, what, reason, cause=cause))


def refused(what: str, reason: str, cause: str = "other") -> FeedFailed:
    """The sink refuses the credentials. It is tried again, because they may be put anew."""
    return FeedFailed(Failure("retry", "sink", what, reason, refused=True, cause=cause))


def failed(stage: HeldStage, what: str, reason: str, cause: str = "other") -> FeedFailed:
    """A failure that only a person can end."""
    return FeedFailed(Failure("failed", stage, what, reason, cause=cause))


def fenced(what: str, reason: str) -> FeedFailed:
    """Another holder owns the shard: this one must end, and change nothing any more."""
    return FeedFailed(Failure("fenced", "sink", what, reason))
