"""Finds the columns whose values a feed needs, because it sends them, or because they decide what is sent and to which
partition. Values of other columns are not decoded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tistream.errors import InvalidRequest
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.dispatch.dispatchers import Dispatchers
from tistream_changefeed.filters.column_selector import ColumnSelector, selector_of
from tistream_changefeed.filters.feed_filter import FeedFilter
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.split import Splitting


@dataclass(frozen=True, slots=True)
class NeededColumns:
    """The columns of each table that a feed with column selectors needs. `text` is the part of the configuration that
    decides: instances with equal texts choose equally, so that two feeds share the events that they read."""

    text: str
    selectors: Sequence[ColumnSelector] = field(compare=False)
    filter: FeedFilter = field(compare=False)
    dispatchers: Dispatchers = field(compare=False)
    splitting: Splitting = field(compare=False)

    def __call__(self, version: TableVersion) -> Sequence[Column]:
        """The columns of a table whose values the feed needs. All columns that changes have, if no selector matches the
        table, or if the table does not fit the configuration: that error is found when a row is sent."""
        table = version.table
        selector = selector_of(self.selectors, version)
        if selector is None:
            return table.visible_columns
        try:
            found = [
                *selector.sent(table),
                *handle_columns(table),
                *self.splitting(version),
                *self.dispatchers.rule(*version.name).hashed(version),
                *self.filter.columns(version),
            ]
        except InvalidRequest:
            return table.visible_columns
        return [column for column in table.visible_columns if column in found]
