"""Puts the change files of a territory's chain into object storage, in order, by conditional PUTs that are repeated
until their result is known (docs/agent.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream.errors import CommitConflict, CommitStateUnknown, NotFoundYet, TiStreamError, Unavailable
from tistream.format import change_file
from tistream.storage.change_reader import open_change_file
from tistream.storage.object_store import ObjectStore
from tistream_agent.core import chain
from tistream_agent.core.cutter import Draft
from tistream_agent.core.steps import FileDurable, ForeignFile

log = logging.getLogger(__name__)

PAUSE_S, PAUSE_MAX_S = 0.1, 3.0


class Outbox:
    """Puts change files into the object store, one at a time, and repeats a put until its result is known. `announce`
    reports a file to the platform; if it fails, that is only logged. `wait` pauses for seconds, and returns True once
    the process must end."""

    def __init__(self, objects: ObjectStore, announce: Callable[[Draft], None], wait: Callable[[float], bool]) -> None:
        self._objects, self._announce, self._wait = objects, announce, wait

    def put(self, draft: Draft) -> FileDurable | ForeignFile | None:
        """Put a file, and repeat the PUT until it is known which process wrote the object of that name. Returns
        FileDurable or ForeignFile; None if the process must end first."""
        body, pause_s, problem = draft.data(), PAUSE_S, ""
        while True:
            try:
                nonce = self._attempt(draft, body)
            except (Unavailable, CommitStateUnknown, NotFoundYet) as error:
                # The same bytes at the same name again: a conflict then shows whether the write had happened.
                if str(error) != problem:
                    problem = str(error)
                    log.warning("a file cannot be put yet", extra={"key": draft.key, "reason": problem})
                if self._wait(pause_s):
                    return None
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
                continue
            if nonce != draft.nonce:
                return ForeignFile(draft.ts, nonce)
            self._announced(draft)
            return FileDurable(draft.ts)

    def _attempt(self, draft: Draft, body: bytes) -> str:
        """Try to create the object. Returns the nonce of the object that exists afterwards; empty if no agent wrote
        that object. Raises Unavailable, CommitStateUnknown or NotFoundYet if the caller must try again."""
        try:
            self._objects.put_new(draft.key, body)
            return draft.nonce
        except CommitConflict:
            try:
                found = open_change_file(self._objects, draft.key)
                return change_file.footer_metadata(draft.key, found.footer).get(chain.NONCE, "")
            except TiStreamError as error:
                if isinstance(error, Unavailable | NotFoundYet):
                    raise
                return ""  # an object that no agent wrote

    def _announced(self, draft: Draft) -> None:
        try:
            self._announce(draft)
        except TiStreamError as error:  # dispatchers LIST too: this costs latency only
            log.info("a file was not announced", extra={"key": draft.key, "reason": str(error)})
