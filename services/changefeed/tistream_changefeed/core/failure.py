"""Failures of a feed: why it does not advance, and whether its worker retries. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tistream.wire.bulk.changefeeds import HeldBy, HeldStage

Kind = Literal["retry", "failed", "fenced"]
"""`retry`: it may pass by itself. `failed`: a person must act. `fenced`: another holder owns the shard."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of one step of a shard. `object` is what the step worked on. `reason` names the remedy, and
    contains no secret. `refused`: the sink has answered, and rejects the credentials or the certificate; a person
    must act, unless the credentials are just being replaced. `cause` is the label by which failures are counted;
    for Kafka it is the name of the client's error."""

    kind: Kind
    stage: HeldStage
    object: str
    reason: str
    refused: bool = False
    cause: str = "other"

    @property
    def held_by(self) -> HeldBy:
        """Convert the failure to an entry of `held_by` in a status."""
        return HeldBy(stage=self.stage, object=self.object, reason=self.reason)


class FeedFailed(Exception):
    """Raised if a step of a shard failed. `failure` says why, and whether it is retried."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.object}: {failure.reason}")
        self.failure = failure


def retry(stage: HeldStage, what: str, reason: str, cause: str = "other") -> FeedFailed:
    """Build the FeedFailed of an error that may pass by itself, so the step is retried. `what`: the object that is
    concerned."""
    return FeedFailed(Failure("retry", stage, what, reason, cause=cause))


def refused(what: str, reason: str, cause: str = "other") -> FeedFailed:
    """Build the FeedFailed for a sink that rejects the credentials. The step is retried, because an operator may
    replace them. `what`: the object that is concerned."""
    return FeedFailed(Failure("retry", "sink", what, reason, refused=True, cause=cause))


def failed(stage: HeldStage, what: str, reason: str, cause: str = "other") -> FeedFailed:
    """Build the FeedFailed of an error that only a person can end, so the step is not retried. `what`: the object that
    is concerned."""
    return FeedFailed(Failure("failed", stage, what, reason, cause=cause))


def fenced(what: str, reason: str) -> FeedFailed:
    """Build the FeedFailed for a shard that another worker owns now. This worker must end, and must not write any more.
    `what`: the shard."""
    return FeedFailed(Failure("fenced", "sink", what, reason))
