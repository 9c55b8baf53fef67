"""Whether an order for a backfill can be accepted: its form. Pure."""

from __future__ import annotations

from tistream.errors import InvalidRequest
from tistream.storage.open import check_url
from tistream.wire.backfills import PATTERN_MAX, BackfillSource, StartBackfill


def check(order: StartBackfill) -> None:
    """Raises InvalidRequest with the wrong member: a source lacks what its kind needs or has what it does not, or a
    pattern of tables is malformed."""
    source = order.source
    _check_members(source)
    if source.url is not None:
        if not source.url.isascii():
            raise InvalidRequest("url: percent-encode characters that are not ASCII", {"parameter": "source"})
        check_url(source.url)
    for pattern in order.tables:
        database, point, table = pattern.partition(".")
        if not (database and point and table) or "[" in pattern or len(pattern) > PATTERN_MAX:
            raise InvalidRequest(
                f"tables: {pattern[:PATTERN_MAX]!r} is not of the form database.table, as in shop.*",
                {"parameter": "tables"},
            )


def _check_members(source: BackfillSource) -> None:
    needs = {"br-full": "url", "sql": "dsn_file", "push": None}[source.kind]
    for name in ("url", "dsn_file"):
        given = getattr(source, name) is not None
        if given != (name == needs):
            said = f"needs {name}" if not given else f"has no {name}"
            raise InvalidRequest(f"a source of kind {source.kind} {said}", {"parameter": "source"})
