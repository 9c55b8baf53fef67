"""Converts the differences between the windows that a feed has committed and what its sink holds to an answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tistream.schema.visible import Name
from tistream.wire.bulk.feed_verify import DIFFERENCES_MAX, LeftOut, VerifiedWindow
from tistream_changefeed.fingerprints.windows import OTHERS, ComparedWindows


def only(table: str | None, names: Iterable[Name]) -> Name | None:
    """The name of the one table that is compared if a request names `table`, as the upstream writes it; None: all
    tables are compared. `names`: the tables of which events were looked for."""
    if table is None:
        return None
    database, _, name = table.partition(".")
    return next(iter(names), (database, name))


def verified_windows(windows: ComparedWindows) -> list[VerifiedWindow]:
    """Convert the first DIFFERENCES_MAX differences, by ts, to the form of the answer."""
    found = sorted(windows.differences, key=lambda one: (one.until_ts, one.name))[:DIFFERENCES_MAX]
    return [
        VerifiedWindow(
            database=one.name[0],
            table=one.name[1],
            from_ts=str(one.after_ts),
            to_ts=str(one.until_ts),
            events=one.sent.events,
            messages=one.found.events,
        )
        for one in found
    ]


def late_tables(windows: ComparedWindows) -> list[LeftOut]:
    """Convert the tables of late windows to the form of the answer. These windows were not compared, nor were windows
    of other tables at the same time."""
    reason = "was sent late, after it had stopped, so no table's windows of that time were compared"
    names = sorted(name for name in windows.late if name != OTHERS)
    return [LeftOut(database=database, table=table, reason=reason) for database, table in names]
