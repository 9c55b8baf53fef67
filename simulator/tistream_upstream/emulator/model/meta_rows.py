"""Makes the rows of the `m` keys from a schema snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from tistream_upstream.emulator.model.timeline import COMMITTED, PUT, Row
from tistream_upstream.schema.ddl_steps import database_key, table_key


def meta_rows(schema: Mapping[str, Any]) -> Iterator[Row]:
    """The `m` keys of a `schema_snap`, as rows at its snapshot_ts: a DBInfo for each database, a TableInfo for each
    table."""
    ts = schema["snapshot_ts"]
    for database in schema["databases"]:
        info = database["db_info"]
        yield Row(COMMITTED, PUT, database_key(info["id"]), orjson.dumps(info), start_ts=ts, commit_ts=ts)
        for table in database.get("tables") or ():
            yield Row(
                COMMITTED, PUT, table_key(info["id"], table["id"]), orjson.dumps(table), start_ts=ts, commit_ts=ts
            )
