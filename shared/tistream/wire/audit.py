"""The audit log, as the meta server tells it and the API hands it on."""

from __future__ import annotations

from typing import Any

from tistream.wire.sorter import Wire

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000


class AuditEntry(Wire):
    """One change that somebody asked for, or that the platform made of such a one later.

    seq: without gaps, in the order of the commits. at_ms: the database's clock. was, became: the members that differ,
    None for all of them where the subject was not there before, or is not any more.
    """

    seq: int
    at_ms: int
    action: str
    actor: str
    address: str | None
    cause: str | None
    subject: str
    cluster_id: str | None
    tenant_id: str | None
    was: dict[str, Any] | None
    became: dict[str, Any] | None


class AuditPage(Wire):
    """Entries, the oldest first. `newest_seq`: the last one that there is, whatever was asked for; 0: none ever was."""

    entries: list[AuditEntry]
    newest_seq: int
