"""The typed configuration of a feed. Pure. Names and defaults are TiCDC's, unless a docstring says otherwise."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Protocol = Literal["open-protocol", "canal-json", "debezium", "avro", "simple"]
OnTableError = Literal["stop-table", "stop-feed", "leave-table"]
Delivery = Literal["exactly-once", "at-least-once"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EventFilterConfig(_Part):
    """One entry of `[[filter.event-filters]]`: which events of the matching tables are left out."""

    matcher: tuple[str, ...]
    ignore_event: tuple[str, ...] = ()
    ignore_sql: tuple[str, ...] = ()
    ignore_insert_value_expr: str = ""
    ignore_update_old_value_expr: str = ""
    ignore_update_new_value_expr: str = ""
    ignore_delete_value_expr: str = ""
    ignore_update_only_columns: tuple[str, ...] = ()


class FilterConfig(_Part):
    """The section `[filter]`, and the keys of the top level that decide which tables are sent."""

    rules: tuple[str, ...] = ("*.*",)
    case_sensitive: bool = False
    force_replicate: bool = False
    ignore_txn_start_ts: tuple[int, ...] = ()
    event_filters: tuple[EventFilterConfig, ...] = ()


class DispatcherConfig(_Part):
    """One entry of `sink.dispatchers`. If `topic` is None, the topic of the sink URI is used."""

    matcher: tuple[str, ...]
    topic: str | None = None
    partition: str = "default"
    index: str | None = None
    columns: tuple[str, ...] = ()


class SelectorConfig(_Part):
    """One entry of `sink.column-selectors`: which columns of the matching tables are sent."""

    matcher: tuple[str, ...]
    columns: tuple[str, ...]


class TableErrorConfig(_Part):
    """One entry of `tistream.tables`: how errors of the matching tables are handled. `on_row_error`: whether a row
    event that cannot be sent stops its table, or is written to the dead letter topic. `on_table_error` says whether
    such an event stops only its table or the feed; if it is None, the setting of the whole feed applies."""

    matcher: tuple[str, ...]
    on_table_error: OnTableError | None = None
    on_row_error: Literal["stop", "dead-letter"] = "stop"


class LargeMessageConfig(_Part):
    """The section `[sink.kafka-config.large-message-handle]`, which says what is done with messages above the size
    limit."""

    option: Literal["none", "handle-key-only", "claim-check"] = "none"
    compression: Literal["none", "lz4", "snappy"] = "none"
    claim_check_storage_uri: str | None = None
    claim_check_raw_value: bool = False


class KafkaConfig(_Part):
    """The brokers and the topic of the sink URI, and `[sink.kafka-config]`.

    If `partition_num` is None, all partitions of a topic are used. `ca`, `cert` and `key` are PEM texts.
    `sasl_password` and `key` are references of the form `${secret:NAME}`.
    """

    brokers: tuple[str, ...] = ()
    topic: str = ""
    partition_num: int | None = None
    replication_factor: int = 1
    auto_create_topic: bool = True
    max_message_bytes: int = 10 << 20
    compression: Compression = "none"
    required_acks: int = -1
    large: LargeMessageConfig = LargeMessageConfig()
    enable_tls: bool = False
    insecure_skip_verify: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_user: str | None = None
    sasl_password: str | None = None


class MySqlConfig(_Part):
    """The server of the sink URI, and `[sink.mysql-config]`.

    `workers`: how many connections write side by side. `safe_mode`: rows are always put by REPLACE. `atomicity`: with
    `table` or `global`, each transaction of the server has whole transactions of the upstream, in order. `snapshot`:
    with `now` the feed begins with the rows of its tables as of its start_ts. `sync_points`: at each multiple of
    `sync_interval_ms` the server has exactly the state of one ts, and that is marked there; marks are kept for
    `sync_retention_ms`. `ca`, `cert` and `key` are PEM texts.
    `password` and `key` are references of the form `${secret:NAME}`.
    """

    host: str
    port: int = 3306
    user: str = "root"
    password: str | None = None
    workers: int = 16
    safe_mode: bool = False
    atomicity: Literal["none", "table", "global"] = "none"
    snapshot: Literal["none", "now"] = "none"
    sync_points: bool = False
    sync_interval_ms: int = 600_000
    sync_retention_ms: int = 86_400_000
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class ProtocolConfig(_Part):
    """The protocol of the messages, and the options of its encoder."""

    protocol: Protocol = "open-protocol"
    max_batch_size: int = 16
    enable_tidb_extension: bool = False
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    content_compatible: bool = False
    output_row_key: bool = False
    output_old_value: bool = True
    debezium_disable_schema: bool = False
    schema_registry: str | None = None
    avro_decimal_handling_mode: Literal["precise", "string"] = "precise"
    avro_bigint_unsigned_handling_mode: Literal["long", "string"] = "long"
    send_bootstrap_interval_in_sec: int = 120
    send_bootstrap_in_msg_count: int = 10_000
    send_bootstrap_to_all_partition: bool = True
    send_all_bootstrap_at_start: bool = False


class CsvConfig(_Part):
    """The section `[sink.csv]`."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    output_old_value: bool = False
    binary_encoding_method: str = "base64"


class StorageConfig(_Part):
    """The address of the files in the sink URI, and `[sink.cloud-storage-config]`. `url` has no options. `format` is
    the protocol. `layout` is that of TiCDC, or one directory for each window of rows. `access_key` and
    `secret_access_key` are those of S3, the second as a reference of the form `${secret:NAME}`; if they are None, the
    worker's own are used."""

    url: str
    format: Literal["csv", "canal-json", "parquet"]
    flush_interval_ms: int = 5_000
    file_size: int = 64 << 20
    date_separator: Literal["none", "year", "month", "day"] = "day"
    enable_partition_separator: bool = True
    file_index_digit: int = 20
    output_column_id: bool = False
    layout: Literal["ticdc", "window"] = "ticdc"
    terminator: str = "\r\n"
    csv: CsvConfig = CsvConfig()
    access_key: str | None = None
    secret_access_key: str | None = None


class IcebergConfig(_Part):
    """The catalog and the namespace of the sink URI, and `[tistream.iceberg]`. `catalog_uri`: a URL of SQLAlchemy,
    or that of a REST catalog. `warehouse`: the URL below which the tables are. `namespace` may have `{database}` in
    it. `mode`: the changes of tables are written, or the tables themselves, or both. `snapshot`: with `now`, a new
    feed begins with the rows of its tables. `delta_share`: changes of a table itself wait in a delta table until
    their rows are more than this percentage of the rows of the files that they change; 0: there are no delta
    tables. `token`, `credential` and `secret_access_key` are references of the form `${secret:NAME}`."""

    catalog: str
    namespace: str
    catalog_uri: str
    catalog_type: Literal["sql", "rest"] = "sql"
    warehouse: str
    mode: Literal["changelog", "upsert", "both"] = "changelog"
    flush_interval_ms: int = 60_000
    file_size: int = 64 << 20
    keep_snapshots: int = 100
    keep_hours: int = 24
    delta_share: int = 0
    snapshot: Literal["none", "now"] = "none"
    token: str | None = None
    credential: str | None = None
    access_key: str | None = None
    secret_access_key: str | None = None


class FeedConfig(_Part):
    """The whole configuration of a feed. `kafka` names no brokers if the feed has another sink; `storage` is None if it
    does not write files, `mysql` if it does not write into a database, and `iceberg` if it does not write into a lake.
    `raw_changes`: no update is split
    (`output-raw-change-event`). These are keys of `[tistream]`: `delivery` (exactly once or at least once),
    `split_unique_updates` (updates of any unique index are split, not only those of the handle key), `compatible`
    (messages reproduce TiCDC's errors), `allow_no_tables` (a feed is accepted although its rules include no existing
    table), `on_table_error` (whether an event that cannot be sent stops its table or the feed), `tables` (entries for
    tables; the first one that matches a table applies), `shards` (the number of shards that write the feed in
    parallel), `shards_max` (the load decides the number, up to this one), `admin_events` (messages announce a changed
    number of partitions)."""

    kafka: KafkaConfig = KafkaConfig()
    storage: StorageConfig | None = None
    mysql: MySqlConfig | None = None
    iceberg: IcebergConfig | None = None
    filter: FilterConfig = FilterConfig()
    protocol: ProtocolConfig = ProtocolConfig()
    dispatchers: tuple[DispatcherConfig, ...] = ()
    column_selectors: tuple[SelectorConfig, ...] = ()
    raw_changes: bool = False
    delivery: Delivery = "exactly-once"
    split_unique_updates: bool = True
    compatible: bool = False
    allow_no_tables: bool = False
    on_table_error: OnTableError = "stop-table"
    tables: tuple[TableErrorConfig, ...] = ()
    shards: int = 1
    shards_max: int = 1
    admin_events: bool = False
