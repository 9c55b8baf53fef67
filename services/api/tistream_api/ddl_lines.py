"""DDL events as columns. Pure. They are few: one Python object each is fine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import orjson
import pyarrow as pa

from tistream.schema.ddl_event import DdlEvent
from tistream_api import events
from tistream_api.cursor import Place


def render(ddl: Iterable[DdlEvent]) -> pa.Table:
    """events.SCHEMA. Several at one commit_ts keep their order: `table_id` numbers them from 1."""
    rows = [
        {
            "commit_ts": event.commit_ts,
            "place": int(Place.DDL),
            "start_ts": 0,
            "table_id": number,
            "op": 0,
            "key": b"",
            "line": _line(event),
        }
        for _, same in groupby(ddl, key=lambda event: event.commit_ts)
        for number, event in enumerate(same, start=1)
    ]
    return pa.Table.from_pylist(rows, schema=events.SCHEMA)


def _line(event: DdlEvent) -> bytes:
    return orjson.dumps(
        {
            "type": "ddl",
            "commit_ts": str(event.commit_ts),
            "database": event.database,
            "table": event.table,
            "query": event.query,
            "action": event.action,
            "schema_version": str(event.schema_version),
            "involved": [{"database": database, "table": table} for database, table in event.involved],
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )
