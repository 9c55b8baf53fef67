"""The view `t_now`, which joins a table with its delta: its query, and how a feed knows a view as its own. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tistream_changefeed.sinks.iceberg.table_schema import DELETED_NAME
from tistream_changefeed.sinks.iceberg.target import Identifier, delta_of, now_of

VIEW_OF = "tistream.view_of"
"""The property of a view that names the table whose rows it shows."""
SUMMARY = {"engine-name": "tistream"}
"""The summary of a view's version. Some catalogs replace it by their own."""
QUOTES = {"spark": "`", "trino": '"'}
"""The character that encloses names, by dialect."""
_SUFFIX = now_of(("",))[-1]


def now_query(table: Identifier, delta: Identifier, columns: Sequence[str], keys: Sequence[str], quote: str) -> str:
    """The query of the view `t_now`: the rows of the table whose key the delta does not have, and those of the delta.
    `quote`: the character that encloses names."""
    same = " AND ".join(f"{_named(quote, 'd', key)} = {_named(quote, 't', key)}" for key in keys)
    shown = ", ".join(_named(quote, one) for one in columns)
    begin, middle, end = _frame(table, delta, quote)
    return f"{begin}{shown}{middle}{same}) UNION ALL SELECT {shown}{end}"


def is_of_feed(
    view: Identifier, properties: Mapping[str, str], summary: Mapping[str, str], queries: Iterable[str]
) -> bool:
    """Whether a feed has stored a view, so that it may be replaced or dropped: its property says so, or its summary.
    Some catalogs keep neither, and earlier releases have not set the property; then one of its queries shows it."""
    if VIEW_OF in properties or SUMMARY.items() <= summary.items():
        return True
    if not view[-1].endswith(_SUFFIX):
        return False
    table = (*view[:-1], view[-1].removesuffix(_SUFFIX))
    frames = [_frame(table, delta_of(table), quote) for quote in QUOTES.values()]
    return any(
        query.startswith(begin) and middle in query and query.endswith(end)
        for query in queries
        for begin, middle, end in frames
    )


def _frame(table: Identifier, delta: Identifier, quote: str) -> tuple[str, str, str]:
    """The parts of the query that do not depend on the columns."""
    return (
        "SELECT ",
        f" FROM {_named(quote, *table)} AS {_named(quote, 't')} WHERE NOT EXISTS (SELECT 1 FROM "
        f"{_named(quote, *delta)} AS {_named(quote, 'd')} WHERE ",
        f" FROM {_named(quote, *delta)} WHERE NOT {_named(quote, DELETED_NAME)}",
    )


def _named(quote: str, *names: str) -> str:
    return ".".join(quote + name.replace(quote, quote * 2) + quote for name in names)
