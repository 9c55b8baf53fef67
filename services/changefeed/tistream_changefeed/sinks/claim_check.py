"""Writes the files of messages that are too large for their topic, before the messages are sent."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.errors import CommitConflict, CommitStateUnknown, RetryableError
from tistream.storage.object_store import ObjectStore
from tistream_changefeed.core.failure import failed, retry
from tistream_changefeed.protocols.messages import ClaimFile

_TRIES = 3


class ClaimFiles:
    """Writes the claim-check files of a feed below `location` in an object store. A file is never replaced, and never
    deleted here."""

    def __init__(self, objects: ObjectStore, location: str) -> None:
        self._objects, self._location = objects, location

    def put(self, claims: Iterable[ClaimFile]) -> None:
        """Write these files. A file that exists with the same bytes is from an earlier attempt, and is kept. Raises
        FeedFailed."""
        for claim in claims:
            try:
                self._put(claim)
            except RetryableError as error:
                raise retry("sink", self._location, f"a file cannot be put: {error}") from error

    def _put(self, claim: ClaimFile) -> None:
        for _ in range(_TRIES):
            try:
                self._objects.put_new(claim.name, claim.content)
                return
            except CommitStateUnknown:  # the same bytes again show whether they are there
                continue
            except CommitConflict:
                self._check_same(claim)
                return
        raise retry("sink", self._location, f"no answer came to {_TRIES} puts of {claim.name}")

    def _check_same(self, claim: ClaimFile) -> None:
        if self._objects.get(claim.name) != claim.content:
            raise failed(
                "sink",
                f"{self._location}/{claim.name}",
                "the file of this event has other bytes: the feed was configured otherwise when it was put, or another "
                "program writes there; set another claim-check-storage-uri, then resume the changefeed",
            )
