"""Deletes old entries of the audit log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tistream_meta.database.audit_log import AuditLog

log = logging.getLogger(__name__)


class AuditKeeping:
    """Deletes old entries of the audit log. A background loop calls `step`. Only the owner deletes: entries older than
    `keep_ms`, by the database's clock."""

    def __init__(self, entries: AuditLog, is_owner: Callable[[], bool], keep_ms: int) -> None:
        self._entries, self._is_owner, self._keep_ms = entries, is_owner, keep_ms

    def step(self) -> None:
        """Loop body: delete old entries. Raises Unavailable, Fenced."""
        if self._is_owner() and (gone := self._entries.forget(self._keep_ms)):
            log.info("old audit entries deleted", extra={"entries": gone})
