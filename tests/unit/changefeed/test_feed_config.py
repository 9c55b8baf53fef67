"""Sink URIs and configuration files of TiCDC: what is taken, what is refused by name, and that no secret is shown."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from support.feed_tables import Key, column, version
from tistream.errors import InvalidRequest
from tistream.schema.tidb import table as t
from tistream_changefeed.config import keys, parts
from tistream_changefeed.config.feed_config import DispatcherConfig, FeedConfig, SelectorConfig
from tistream_changefeed.config.parse import ParsedFeed, parse_feed, read_toml
from tistream_changefeed.dispatch.partition_rule import PartitionBy
from tistream_changefeed.rows.split import by_unique_index, never
from tistream_changefeed.sinks.kafka.feed_settings import without_secrets

URI = "kafka://b1:9092,b2:9093/events"
USED = keys.KAFKA_KEYS.used
HANDLE_KEY_ONLY = "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'handle-key-only'"

# The keys of reference section 11, as a file for `cdc cli changefeed create --config`
WHOLE = """
memory-quota = 1073741824
case-sensitive = true
force-replicate = true
check-gc-safe-point = true
ignore-ineligible-table = false
changefeed-error-stuck-duration = "30m"
enable-sync-point = false
sync-point-interval = "10m"
sync-point-retention = "24h"
bdr-mode = false

[mounter]
worker-num = 16

[filter]
rules = ["shop.*", "!shop.secret"]
ignore-txn-start-ts = [1, 2]
[[filter.event-filters]]
matcher = ["shop.orders"]
ignore-event = ["drop table", "delete"]
ignore-sql = ["^drop"]
ignore-insert-value-expr = "price < 10"
ignore-update-new-value-expr = "price < 10"
ignore-update-only-columns = ["updated_at"]

[scheduler]
enable-table-across-nodes = false
region-threshold = 100000
write-key-threshold = 0

[sink]
protocol = "canal-json"
encoder-concurrency = 32
terminator = "\\r\\n"
date-separator = "day"
enable-partition-separator = true
file-index-digit = 20
only-output-updated-columns = true
delete-only-output-handle-key-columns = true
content-compatible = false
safe-mode = true
transaction-atomicity = "none"
debezium-disable-schema = true
send-bootstrap-interval-in-sec = 10
send-bootstrap-in-msg-count = 100
send-bootstrap-to-all-partition = false
send-all-bootstrap-at-start = true
dispatchers = [
  {matcher = ["shop.o*"], topic = "{schema}_{table}", partition = "index-value", index = "i"},
  {matcher = ["shop.*"], dispatcher = "ts"},
  {matcher = ["*.*"], partition = "columns", columns = ["id", "a"]},
]
column-selectors = [{matcher = ["shop.orders"], columns = ["*", "!note"]}]
[sink.open]
output-old-value = false
[sink.debezium]
output-old-value = false
[sink.csv]
delimiter = ","
[sink.mysql-config]
worker-count = 8
[sink.cloud-storage-config]
flush-interval = "5s"
[sink.kafka-config]
partition-num = 8
replication-factor = 2
kafka-version = "2.4.0"
max-message-bytes = 1000000
compression = "zstd"
kafka-client-id = "x"
auto-create-topic = false
dial-timeout = "10s"
required-acks = -1
sasl-mechanism = "scram-sha-256"
sasl-user = "me"
sasl-password = "hunter2"
enable-tls = true
[sink.kafka-config.codec-config]
enable-tidb-extension = true
max-batch-size = 4
avro-decimal-handling-mode = "string"
avro-bigint-unsigned-handling-mode = "string"
[sink.kafka-config.large-message-handle]
large-message-handle-option = "claim-check"
large-message-handle-compression = "lz4"
claim-check-storage-uri = "s3://bucket/large"

[consistent]
level = "none"
[integrity]
integrity-check-level = "none"
corruption-handle-level = "warn"
[synced-status]
synced-check-interval = 300
checkpoint-interval = 15

[tistream]
delivery = "exactly-once"
compatible = "ticdc"
split-unique-updates = false
"""


def parsed(text: str = "", uri: str = URI) -> ParsedFeed:
    return parse_feed(uri, read_toml(text))


def test_a_whole_file_of_ticdc_is_taken() -> None:
    found = parsed(WHOLE).config
    assert found.filter.rules == ("shop.*", "!shop.secret")
    assert (found.filter.case_sensitive, found.filter.force_replicate) == (True, True)
    assert found.filter.ignore_txn_start_ts == (1, 2)
    assert found.filter.event_filters[0].ignore_insert_value_expr == "price < 10"
    assert found.filter.event_filters[0].ignore_update_only_columns == ("updated_at",)
    assert found.dispatchers == (
        DispatcherConfig(matcher=("shop.o*",), topic="{schema}_{table}", partition="index-value", index="i"),
        DispatcherConfig(matcher=("shop.*",), partition="ts"),
        DispatcherConfig(matcher=("*.*",), partition="columns", columns=("id", "a")),
    )
    assert found.column_selectors == (SelectorConfig(matcher=("shop.orders",), columns=("*", "!note")),)
    kafka = found.kafka
    assert (kafka.brokers, kafka.topic) == (("b1:9092", "b2:9093"), "events")
    assert (kafka.partition_num, kafka.replication_factor, kafka.max_message_bytes) == (8, 2, 1_000_000)
    assert (kafka.compression, kafka.auto_create_topic, kafka.enable_tls) == ("zstd", False, True)
    assert (kafka.sasl_mechanism, kafka.sasl_user) == ("SCRAM-SHA-256", "me")
    assert (kafka.large.option, kafka.large.compression) == ("claim-check", "lz4")
    assert kafka.large.claim_check_storage_uri == "s3://bucket/large"
    protocol = found.protocol
    assert (protocol.protocol, protocol.enable_tidb_extension, protocol.max_batch_size) == ("canal-json", True, 4)
    assert protocol.only_output_updated_columns
    assert protocol.delete_only_output_handle_key_columns
    assert protocol.debezium_disable_schema
    assert protocol.send_all_bootstrap_at_start
    assert not protocol.send_bootstrap_to_all_partition
    assert (protocol.send_bootstrap_interval_in_sec, protocol.send_bootstrap_in_msg_count) == (10, 100)
    assert protocol.output_old_value  # the key is of other protocols
    assert (protocol.avro_decimal_handling_mode, protocol.avro_bigint_unsigned_handling_mode) == ("string", "string")
    assert (found.delivery, found.compatible, found.split_unique_updates) == ("exactly-once", True, False)


def test_keys_that_a_feed_does_not_need_are_named() -> None:
    named = {warning.split(" ")[0] for warning in parsed(WHOLE).warnings}
    assert {"memory-quota", "mounter.worker-num", "consistent.level", "sink.mysql-config.worker-count"} <= named
    assert not {name for name in named if name in USED}
    assert parsed().warnings == ()


def test_the_defaults_are_ticdcs() -> None:
    found = parsed().config
    assert found == FeedConfig.model_validate({"kafka": {"brokers": ("b1:9092", "b2:9093"), "topic": "events"}})
    assert (found.protocol.protocol, found.protocol.max_batch_size, found.filter.rules) == (
        "open-protocol",
        16,
        ("*.*",),
    )


def test_options_of_the_uri_win_over_the_file() -> None:
    options = "protocol=debezium&partition-num=5&enable-tidb-extension=true&max-message-bytes=2000"
    uri = f"{URI}?{options}&delivery=at-least-once"
    found = parsed("[sink]\nprotocol = 'canal-json'\nkafka-config.partition-num = 5", uri)
    assert found.config.protocol.protocol == "debezium"
    assert found.config.protocol.enable_tidb_extension
    assert (found.config.kafka.partition_num, found.config.kafka.max_message_bytes) == (5, 2000)
    assert found.config.delivery == "at-least-once"
    assert found.warnings == ("sink.protocol of the configuration is not used: the sink URI has another value",)


def test_the_keys_of_a_queried_changefeed_are_taken_with_underscores() -> None:
    found = parse_feed(URI, {"force_replicate": True, "sink": {"kafka_config": {"partition_num": 3}, "protocol": None}})
    assert found.config.filter.force_replicate
    assert found.config.kafka.partition_num == 3


@pytest.mark.parametrize(
    ("protocol", "key"), [("open-protocol", "open"), ("debezium", "debezium"), ("default", "open")]
)
def test_old_values_are_left_out_for_the_protocol_of_the_key(protocol: str, key: str) -> None:
    text = f"[sink]\nprotocol = '{protocol}'\n[sink.{key}]\noutput-old-value = false"
    assert not parsed(text).config.protocol.output_old_value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1", "'x' is unknown: remove it"),
        ("[filter]\nrule = ['a.b']", r"'filter.rule' is unknown: is it 'filter.rules'\?"),
        ("[sink.kafka-config]\npartition_nums = 3", "is it 'sink.kafka-config.partition-num'"),
        ("[filter]\nrule = ['a.b']\n[sink]\ncolour = 1", "'filter.rules'\\?; 'sink.colour' is unknown: remove it"),
        ("[tistream]\nnope = 1", "'tistream.nope' is unknown"),
        ("bdr-mode = true", "bdr-mode = 'True' is not supported"),
        ("[integrity]\nintegrity-check-level = 'correctness'", "row checksums"),
        ("[sink.kafka-config]\nsasl-oauth-token-url = 'x'", "OAUTHBEARER is not supported"),
        ("[sink.kafka-config]\nsasl-gssapi-user = 'x'", "GSSAPI is not supported"),
        ("[sink.kafka-config]\nsasl-mechanism = 'GSSAPI'", "sasl-mechanism"),
        ("[sink.kafka-config.glue-schema-registry-config]\nregion = 'x'", "Glue"),
        ("[sink.pulsar-config]\nx = 1", "Pulsar"),
        ("[tistream]\nheaders = true", "no headers"),
        ("[tistream]\ntime-zone = 'Asia/Shanghai'", "UTC"),
        ("[sink]\nprotocol = 'maxwell'", "sink.protocol"),
        ("[sink]\nprotocol = 'csv'", "csv is for object storage"),
        ("[sink]\nprotocol = 'avro'", "needs sink.schema-registry"),
        ("[sink]\nprotocol = 'avro'\nschema-registry = 'http://[bad'", "schema-registry is not a URL: write http://H"),
        (
            "[sink.kafka-config.large-message-handle]\nclaim-check-storage-uri = 's3://[bad'",
            "claim-check-storage-uri is not a URL: write s3://BUCKET/PATH",
        ),
        ("force-replicate = true\n[sink]\nprotocol = 'avro'\nschema-registry = 'http://r'", "force-replicate"),
        ("[sink.kafka-config]\nrequired-acks = 1", "required-acks must be -1"),
        ("[sink.kafka-config]\nsasl-user = 'x'", "are needed together: give both, or neither"),
        ("[sink.kafka-config]\npartition-num = 0", "partition-num = 0 does not lie from 1 to 10000"),
        ("[sink.kafka-config]\npartition-num = 1.5", r"partition-num = 1.5 is not a whole number from 1 to"),
        ("[sink.kafka-config]\npartition-num = true", "= True is not a whole number"),
        ("[sink.kafka-config]\ncompression = 'brotli'", "compression"),
        ("[sink.kafka-config]\nca = '/etc/passwd'", "names a file of a worker"),
        ("case-sensitive = 'maybe'", "case-sensitive = 'maybe' is neither true nor false"),
        ("[filter]\nrules = 'a.b'", "is not a list of texts: write"),
        ("[filter]\nrules = [1]", "is not a list of texts: write"),
        ("[filter]\nignore-txn-start-ts = ['x']", "= 'x' is not a whole number"),
        ("[filter]\nevent-filters = 1", r"event-filters = 1 is not a list of tables: write \[\["),
        ("[[filter.event-filters]]\nmatcher = ['a.b']\nignore-evnt = []", "'ignore-evnt' is unknown"),
        ("[[filter.event-filters]]\nignore-event = []", r"event-filters\[1\].matcher"),
        ("[sink]\ndispatchers = [{matcher = ['a.b'], target-schema = 'x'}]", "target-schema"),
        ("[sink]\ndispatchers = [{matcher = ['a.b'], partition = 'ts', dispatcher = 'ts'}]", "one setting"),
        ("[sink]\ncolumn-selectors = [{matcher = ['a.b']}]", r"column-selectors\[1\].columns is missing"),
        (
            "[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = 'claim-check'",
            "claim-check-storage-uri",
        ),
        (
            f"[sink]\nprotocol = 'canal-json'\n{HANDLE_KEY_ONLY}",
            "enable-tidb-extension",
        ),
        (
            f"[sink]\nprotocol = 'debezium'\n{HANDLE_KEY_ONLY}",
            "not supported with debezium",
        ),
        ("[tistream]\non-row-error = 'dead-letter'", r"on-row-error of \[\[tistream.tables\]\]"),
        ("[[tistream.tables]]\non-row-error = 'stop'", r"tables\[1\].matcher is missing: give a list"),
        ("[[tistream.tables]]\nmatcher = ['a.b']\non-row-error = 'drop'", "one of stop, dead-letter"),
        ("[[tistream.tables]]\nmatcher = ['a.b']\non-row-eror = 'stop'", "'on-row-eror' is unknown"),
        ("a = ", "the text is not TOML"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        parsed(text)
    assert refused.value.extra == {"parameter": "config"}


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("pulsar://h:6650/t", "other sinks are not supported"),
        ("events", "it is not kafka://"),
        ("kafka:///t", "names no brokers"),
        ("kafka://host/t", "names no brokers"),
        ("kafka://h:1", "not a topic's name"),
        ("kafka://h:1/a b", "not a topic's name"),
        ("kafka://h:1/..", "not a topic's name"),
        ("kafka://h:1/t?partition-num", "it is not a URI"),
        ("kafka://h:1/t?protocol=avro&protocol=avro", "'protocol' is there twice"),
        ("kafka://h:1/t#x", "fragment"),
        ("kafka://u:p@h:1/t?sasl-user=u", "leave one of them out"),
        ("kafka://[::1/t", "it is not a URI"),
    ],
)
def test_a_uri_that_is_wrong_is_refused(uri: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refused:
        parsed(uri=uri)
    assert refused.value.extra == {"parameter": "sink_uri"}


def test_an_unknown_option_of_the_uri_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="partition-nums"):
        parsed(uri=f"{URI}?partition-nums=3")


# --- secrets -------------------------------------------------------------------------------------------------------

SECRET = "hunter2&x=/é"
WITH_SECRETS = [
    ("kafka://me:hunter2%26x%3D%2F%C3%A9@h:1/t", ""),
    ("kafka+ssl://h:1/t?sasl-user=me&sasl-password=hunter2%26x%3D%2F%C3%A9", ""),
    ("kafka://h:1/t", f"[sink.kafka-config]\nsasl-user = 'me'\nsasl-password = '{SECRET}'"),
]


@pytest.mark.parametrize(("uri", "text"), WITH_SECRETS)
def test_a_password_is_taken_out(uri: str, text: str) -> None:
    found = parsed(text, uri)
    assert dict(found.secrets) == {"sasl-password": SECRET}
    assert (found.config.kafka.sasl_user, found.config.kafka.sasl_password) == ("me", "${secret:sasl-password}")
    assert "hunter2" not in repr((found.config, found.sink_uri, found.document, found.warnings))
    again = parse_feed(found.sink_uri, found.document)
    assert again.config == found.config
    assert (again.sink_uri, again.document, dict(again.secrets)) == (found.sink_uri, found.document, {})


def test_secrets_are_kept_under_names_of_their_feed() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nhunter3"
    document = {"sink": {"kafka-config": {"key": pem, "cert": "-----BEGIN CERTIFICATE-----"}}}
    found = without_secrets("orders", "kafka://me:hunter2@h:1/t", document)
    assert dict(found.secrets) == {"orders.sasl-password": "hunter2", "orders.key": pem}
    assert "sasl-password=${secret:orders.sasl-password}" in found.sink_uri
    assert found.document["sink"]["kafka-config"]["key"] == "${secret:orders.key}"
    assert "hunter" not in repr((found.config, found.sink_uri, found.document))
    again = without_secrets("orders", found.sink_uri, found.document)
    assert (again.sink_uri, again.document, dict(again.secrets)) == (found.sink_uri, found.document, {})


def test_the_key_of_a_client_and_the_password_of_a_registry_are_taken_out() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nhunter2"
    found = parse_feed(
        URI,
        {
            "sink": {
                "protocol": "avro",
                "schema-registry": "https://me:hunter2@registry:8081/x",
                "kafka-config": {"key": pem, "cert": "-----BEGIN CERTIFICATE-----", "ca": "${secret:my-ca}"},
            }
        },
    )
    assert dict(found.secrets) == {"key": pem, "schema-registry": "hunter2"}
    assert found.config.protocol.schema_registry == "https://me:${secret:schema-registry}@registry:8081/x"
    assert found.config.kafka.ca == "${secret:my-ca}"
    assert "hunter2" not in repr((found.config, found.document))
    assert parse_feed(found.sink_uri, found.document).config == found.config


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        (f"{URI}?sasl-password=hunter2", ""),
        (URI, "[sink.kafka-config]\nkey = 'hunter2'"),
        (URI, "[sink.kafka-config]\nsasl-password = 'hunter2'\nnope = 1"),
        (f"{URI}?sasl-password=hunter2&sasl-password=hunter2", ""),
        (URI, "[sink.kafka-config.large-message-handle]\nclaim-check-storage-uri = 's3://b?secret-access-key=hunter2'"),
        (URI, "[sink]\nprotocol = 'avro'\nschema-registry = 'http://u:hunter2@[bad'"),
        ("kafka://u:hunter2@h/t", ""),
    ],
)
def test_an_error_shows_no_secret(uri: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parsed(text, uri)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


# --- parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[filter]\nrules = ['a']", "rule 'a'"),
        ("[filter]\nrules = ['@file']", "names a file"),
        ("[[filter.event-filters]]\nmatcher = ['*.*']\nignore-event = ['x']", "not a kind of event"),
        ("[[filter.event-filters]]\nmatcher = ['*.*']\nignore-sql = ['(']", "regular expression"),
        ("[[filter.event-filters]]\nmatcher = ['*.*']\nignore-delete-value-expr = 'sleep(1)'", "not supported"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], topic = 'a b'}]", r"dispatchers\[1\]: topic 'a b'"),
        ("[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'columns'}]", "needs a list of columns"),
        (
            "[sink]\nprotocol = 'avro'\nschema-registry = 'http://r'\ndispatchers = [{matcher = ['*.*'], topic = 'x'}]",
            "avro needs a topic",
        ),
        ("[sink]\ncolumn-selectors = [{matcher = ['*'], columns = ['a']}]", "column-selectors: rule"),
        ("[[tistream.tables]]\nmatcher = ['a']", "tistream.tables: rule"),
    ],
)
def test_a_part_that_is_wrong_is_refused_by_name(text: str, reason: str) -> None:
    config = parsed(text).config
    with pytest.raises(InvalidRequest, match=reason):
        (
            parts.feed_filter(config),
            parts.dispatchers(config),
            parts.column_selectors(config),
            parts.error_rules(config),
        )


def test_parts_follow_the_case_of_the_feed() -> None:
    sink = "[sink]\ndispatchers = [{{matcher = ['Shop.*'], partition = 'ts'}}]"
    text = f"case-sensitive = {{}}\n[filter]\nrules = ['Shop.*']\n{sink}"
    for sensitive in (True, False):
        config = parsed(text.format(str(sensitive).lower())).config
        assert parts.feed_filter(config).includes_name(("shop", "t")) is not sensitive
        assert (parts.dispatchers(config).rule("shop", "t").by is PartitionBy.TS) is not sensitive


def test_updates_are_split_as_the_configuration_says() -> None:
    of = version(
        [column("id", flag=t.FLAG_NOT_NULL), column("u"), column("w")],
        [Key("PRIMARY", ("id",), primary=True), Key("u", ("u",), id=2), Key("w", ("w",), id=3)],
    )

    def names(text: str) -> list[str]:
        config = parsed(text).config
        return [one.name for one in parts.splitting(config, parts.dispatchers(config))(of)]

    assert parts.splitting(parsed().config, parts.dispatchers(parsed().config)) is by_unique_index
    raw = parsed("[sink.kafka-config]\noutput-raw-change-event = true").config
    assert parts.splitting(raw, parts.dispatchers(raw)) is never
    assert names("") == ["id", "u", "w"]
    assert names("[tistream]\nsplit-unique-updates = false") == ["id"]
    sink = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value', index = 'w'}]"
    assert names(f"[tistream]\nsplit-unique-updates = false\n{sink}") == ["id", "w"]


# --- hostile input -------------------------------------------------------------------------------------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(1_000), deadline=None)
@given(
    st.sampled_from(
        sorted([*keys.KAFKA_KEYS.used, *keys.LISTS, *keys.KAFKA_KEYS.fixed, *keys.OLD_VALUE, "sink", "filter"])
    ),
    ANY,
)
def test_any_value_is_taken_or_refused(key: str, value: Any) -> None:
    document: dict[str, Any] = {}
    place = document
    *parents, name = key.split(".")
    for parent in parents:
        place = place.setdefault(parent, {})
    place[name] = value
    with suppress(InvalidRequest):
        found = parse_feed(URI, document)
        assert parse_feed(found.sink_uri, found.document).config == found.config


@settings(max_examples=examples(1_000), deadline=None)
@given(st.text("kafk:/@?&=#[]%,.19-_{}$ é", max_size=30))
def test_any_uri_is_taken_or_refused(text: str) -> None:
    for uri in (text, f"kafka://{text}", f"{URI}?{text}", f"{URI}?sasl-user=a&sasl-password={text}"):
        with suppress(InvalidRequest):
            found = parsed(uri=uri)
            assert parse_feed(found.sink_uri, found.document).config == found.config


def test_a_file_with_lines_left_out_or_repeated_is_taken_or_refused() -> None:
    rng = random.Random(0)
    lines = WHOLE.splitlines()
    taken = 0
    for _ in range(100):
        chosen = [line for line in lines if rng.random() < 0.97]
        if rng.random() < 0.2:
            chosen.insert(rng.randrange(len(chosen)), rng.choice(lines))
        with suppress(InvalidRequest):
            parsed("\n".join(chosen))
            taken += 1
    assert taken
