"""Entries of the audit log, as the meta server returns them and the API server forwards them."""

from __future__ import annotations

from typing import Any

from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000


class AuditEntry(Wire):
    """An entry of the audit log: a change that a caller requested, or that the platform made later because of a
    request.

    seq: the entry's number, in the order of the commits, without gaps. at_ms: time by the database's clock. was,
    became: the members that differ, with their values before and after. `was` is None if the subject did not exist
    before, `became` if it does not exist afterwards.
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
    """Entries of the audit log, oldest first. `newest_seq`: the number of the newest entry in the whole log; 0 if the
    log is empty."""

    entries: list[AuditEntry]
    newest_seq: int


class SignedRead(StrictRequest):
    """What an answer of SignedChanges gives its caller: URLs, valid for `seconds`, of `row_groups` row groups of a
    table, with `rows` rows and `bytes` bytes. They have the changes with `start_ts < commit_ts <= end_ts`, and rows
    outside of this range. No member has a URL, which is a credential."""

    database: str
    table: str
    start_ts: str
    end_ts: str
    row_groups: int
    rows: int
    bytes: int
    seconds: int
