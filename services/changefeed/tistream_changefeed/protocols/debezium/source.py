"""The text of the member `source` in Debezium's messages, and of its schema. Rows, DDLs and watermarks share them."""

from __future__ import annotations

from typing import TypeVar

from tistream.arrays import Int64s
from tistream_changefeed.protocols.go_strings import go_quoted
from tistream_changefeed.protocols.names import safe_name

T = TypeVar("T", int, Int64s)

_LOGICAL_BITS = 18  # of a TSO; the physical milliseconds are above
STRING, INT64 = '"type":"string"', '"type":"int64"'


def field(kind: str, name: str, *, optional: bool = False, more: str = "") -> str:
    """The schema of a field as one JSON object. `kind` has its first members, such as the type; `more` is the text
    before its name, which comes last."""
    return f'{{{kind},"optional":{"true" if optional else "false"}{more},"field":{go_quoted(name)}}}'


_SNAPSHOT = (
    ',"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"true,last,false,incremental"},'
    '"default":"false"'
)
SOURCE_SCHEMA = (
    '{"type":"struct","fields":['
    + ",".join(
        (
            field(STRING, "version"),
            field(STRING, "connector"),
            field(STRING, "name"),
            field(INT64, "ts_ms"),
            field(STRING, "snapshot", optional=True, more=_SNAPSHOT),
            field(STRING, "db"),
            field(STRING, "sequence", optional=True),
            field(STRING, "table", optional=True),
            field(INT64, "server_id"),
            field(STRING, "gtid", optional=True),
            field(STRING, "file"),
            field(INT64, "pos"),
            field('"type":"int32"', "row"),
            field(INT64, "thread", optional=True),
            field(STRING, "query", optional=True),
        )
    )
    + '],"optional":false,"name":"io.debezium.connector.mysql.Source","field":"source"}'
)
ENVELOPE_END = ",".join(
    (
        SOURCE_SCHEMA,
        field(STRING, "op"),
        field(INT64, "ts_ms", optional=True),
        '{"type":"struct","fields":['
        + ",".join((field(STRING, "id"), field(INT64, "total_order"), field(INT64, "data_collection_order")))
        + '],"optional":true,"name":"event.block","version":1,"field":"transaction"}',
    )
)


def physical_ms(ts: T) -> T:
    """Milliseconds since 1970 of a TSO, or of each TSO in an array."""
    return ts >> _LOGICAL_BITS


def source_texts(cluster: str, database: str, table: str) -> tuple[str, str, str]:
    """The constant texts of `source`: before ts_ms, between ts_ms and commit_ts, and after commit_ts."""
    head = f'"source":{{"version":"2.4.0.Final","connector":"TiCDC","name":{go_quoted(cluster)},"ts_ms":'
    middle = (
        f',"snapshot":"false","db":{go_quoted(database)},"table":{go_quoted(table)},"server_id":0,"gtid":null,"file":"",'
        '"pos":0,"row":0,"thread":0,"query":null,"commit_ts":'
    )
    return head, middle, f',"cluster_id":{go_quoted(cluster)}}}'


def source_of(cluster: str, database: str, table: str, ts: int) -> str:
    """The member `source` of a message that is not a row, as JSON."""
    head, middle, tail = source_texts(cluster, database, table)
    return f"{head}{physical_ms(ts)}{middle}{ts}{tail}"


def schema_name(cluster: str, database: str, table: str) -> str:
    """The prefix of the names of a table's schemas: cluster, database and table, with dots between them."""
    return ".".join(map(safe_name, (cluster, database, table)))
