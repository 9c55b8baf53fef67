"""Messages that are too large, and frames of open-protocol: as few bytes, and no more, than a topic takes."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.effort import seeds
from support.feed_tables import Change, Key, batch, column, version
from tistream.schema.tidb import table as t
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.limits import ClaimCheck, Compression, Limit, MessageTooLarge
from tistream_changefeed.protocols.messages import Messages
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.protocols.open_protocol.frames import framed
from tistream_changefeed.protocols.simple.encoder import SimpleEncoder
from tistream_changefeed.rows.row_batch import RowBatch

TABLE = version(
    [column("id", flag=t.FLAG_NOT_NULL | t.FLAG_PRIMARY), column("v", t.VARCHAR)],
    [Key("p", ("id",), primary=True)],
    pk_is_handle=True,
)
KEYLESS = version([column("v", t.VARCHAR)])


def unpacked_lz4(value: bytes) -> bytes:
    """The content of a frame of LZ4, by a decoder that needs no size."""
    return bytes(pa.input_stream(pa.BufferReader(value), compression="lz4").read())


def unpacked_snappy(value: bytes) -> bytes:
    """The content of a block of Snappy, which begins with its size: a varint."""
    size = shift = 0
    for byte in value:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return bytes(pa.decompress(value, size, codec="snappy", asbytes=True))


CLAIMS = ClaimCheck("s3://bucket/claims", b"tenant/feed")


def events(of: Any = TABLE) -> RowBatch:
    """Three inserts, of which the second is large."""
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "b" * 900}, {"id": 3, "v": "c"}]
    return batch(of, [Change(None, row, commit_ts=10 + at, key=b"k%d" % at) for at, row in enumerate(rows)])


def test_a_large_message_is_refused_by_name_with_the_way_out() -> None:
    with pytest.raises(
        MessageTooLarge, match=r"table d\.t, commit_ts 11, key 6b31: .* max-message-bytes is 600"
    ) as found:
        OpenProtocol(OpenOptions(limit=Limit(600))).rows(events())
    assert (found.value.table, found.value.commit_ts, found.value.key) == ("d.t", 11, b"k1")
    with pytest.raises(MessageTooLarge, match="claim-check"):
        CanalJson(CanalOptions(limit=Limit(600))).rows(events())
    whole = CanalJson(CanalOptions(limit=Limit(2_000))).rows(events())
    assert len(json.loads(whole.values[1].as_py())["data"][0]["v"]) == 900


def test_a_large_message_has_its_handle_key_alone() -> None:
    found = OpenProtocol(OpenOptions(limit=Limit(600, handle_key_only=True))).rows(events())
    assert found.keys is not None
    keys, values = ([json.loads(one) for one in array.to_pylist()] for array in (found.keys, found.values))
    assert [key.get("ohk") for key in keys] == [None, True, None]
    assert [list(value["u"]) for value in values] == [["id", "v"], ["id"], ["id", "v"]]
    options = CanalOptions(enable_tidb_extension=True, output_row_key=True, limit=Limit(600, handle_key_only=True))
    value = json.loads(CanalJson(options).rows(events()).values[1].as_py())
    assert value["data"] == [{"id": "2"}]
    assert value["sqlType"] == {"id": -5}
    assert value["_tidb"] == {"commitTs": 11, "onlyHandleKey": True, "rowkey": base64.b64encode(b"k1").decode()}


def test_a_large_message_is_in_a_file_that_its_event_names() -> None:
    options = OpenOptions(limit=Limit(600, claim_check=CLAIMS))
    found = OpenProtocol(options).rows(events())
    assert found.keys is not None
    (claim,) = found.claims
    key = json.loads(found.keys[1].as_py())
    assert (key["ohk"], key["ccl"]) == (False, f"s3://bucket/claims/{claim.name}")
    assert OpenProtocol(options).rows(events()).claims == found.claims  # a repeat names the same file
    content = json.loads(claim.content)
    whole = OpenProtocol(OpenOptions()).rows(events())
    assert whole.keys is not None
    alone = framed(whole, np.array([1]), np.array([], np.int64), 16, 10_000)
    assert base64.b64decode(content["key"]) == alone.keys[0].as_py()
    assert base64.b64decode(content["value"]) == alone.values[0].as_py()
    canal = CanalJson(CanalOptions(enable_tidb_extension=True, limit=options.limit)).rows(events())
    location = json.loads(canal.values[1].as_py())["_tidb"]["claimCheckLocation"]
    assert location == f"s3://bucket/claims/{canal.claims[0].name}"
    other = ClaimCheck(CLAIMS.location, b"tenant/other").names(events())
    assert not set(other) & set(CLAIMS.names(events()))
    assert len(set(CLAIMS.names(events()))) == 3


def test_simple_has_the_handle_key_alone_and_the_file_that_its_event_names() -> None:
    whole = SimpleEncoder().rows(events())
    reduced = SimpleEncoder(limit=Limit(600, handle_key_only=True)).rows(events())
    value = json.loads(reduced.values[1].as_py())
    assert (value["handleKeyOnly"], value["data"]) == (True, {"id": "2"})
    assert reduced.values[0] == whole.values[0]
    raw = ClaimCheck(CLAIMS.location, CLAIMS.salt, raw=True)
    for claims in (CLAIMS, raw):
        found = SimpleEncoder(limit=Limit(600, claim_check=claims)).rows(events())
        (claim,) = found.claims
        value = json.loads(found.values[1].as_py())
        assert value["claimCheckLocation"] == f"s3://bucket/claims/{claim.name}"
        assert value["data"] == {"id": "2"}
        content = claim.content if claims.raw else base64.b64decode(json.loads(claim.content)["value"])
        assert content == whole.values[1].as_py()


@pytest.mark.parametrize(("compression", "unpacked"), [("lz4", unpacked_lz4), ("snappy", unpacked_snappy)])
def test_values_are_compressed_before_they_are_measured(
    compression: Compression, unpacked: Callable[[bytes], bytes]
) -> None:
    """The row of 900 equal letters is small when it is compressed. Keys and resolved frames stay as they are."""
    limit, none = Limit(600, compression=compression), Limit(2_000)
    for packing, plain in (
        (OpenProtocol(OpenOptions(limit=limit)), OpenProtocol(OpenOptions(limit=none))),
        (SimpleEncoder(limit=limit), SimpleEncoder(limit=none)),
        (
            CanalJson(CanalOptions(enable_tidb_extension=True, limit=limit)),
            CanalJson(CanalOptions(enable_tidb_extension=True, limit=none)),
        ),
    ):
        found, expected = packing.rows(events()), plain.rows(events())
        assert [unpacked(one) for one in found.values.to_pylist()] == expected.values.to_pylist()
        assert found.keys == expected.keys
        assert len(found.values[1].as_py()) < 600
        resolved, whole = packing.resolved(7), plain.resolved(7)
        assert resolved is not None
        assert whole is not None
        assert resolved.value is not None
        shown = resolved.value if isinstance(packing, OpenProtocol) else unpacked(resolved.value)
        assert shown == whole.value


def test_what_has_no_smaller_form_is_refused() -> None:
    limit = Limit(600, handle_key_only=True)
    with pytest.raises(MessageTooLarge):
        OpenProtocol(OpenOptions(limit=limit)).rows(events(KEYLESS))
    with pytest.raises(MessageTooLarge, match="with the handle key alone"):
        OpenProtocol(OpenOptions(limit=Limit(100, handle_key_only=True))).rows(events())
    with pytest.raises(ValueError, match="enable-tidb-extension"):
        CanalOptions(limit=limit)


def test_names_of_enums_are_refused() -> None:
    of = version([column("e", t.ENUM, Elems=["a"])])
    rows = batch(of, [Change(None, {"e": "a"})])
    for encoder in (OpenProtocol(OpenOptions()), CanalJson(CanalOptions())):
        with pytest.raises(ValueError, match="column e"):
            encoder.rows(rows)


def reference(
    messages: Messages, order: list[int], breaks: set[int], events_max: int, bytes_max: int
) -> list[list[int]]:
    """The events of each message, one event after the other."""
    assert messages.keys is not None
    out: list[list[int]] = []
    size = 0
    for place, event in enumerate(order):
        added = len(messages.keys[event].as_py()) + len(messages.values[event].as_py()) + 16
        if not out or place in breaks or len(out[-1]) >= events_max or size + added > bytes_max:
            out.append([])
            size = 8 + 36
        out[-1].append(event)
        size += added
    return out


def walked(key: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    """The events of a Kafka message, as a consumer reads them."""
    assert key[:8] == (1).to_bytes(8, "big")
    found: list[list[bytes]] = []
    for data in (key[8:], value):
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "big")
            parts.append(data[at + 8 : at + 8 + size])
            at += 8 + size
        found.append(parts)
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("seed", seeds(8, 100))
def test_frames_hold_the_events_in_order_within_the_limits(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(40)
    keys, values = ([rng.randbytes(rng.randrange(30)) for _ in range(count)] for _ in range(2))
    messages = Messages(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
    order = rng.sample(range(count), count)
    breaks = sorted({rng.randrange(count + 1) for _ in range(3)})
    events_max, bytes_max = rng.choice([1, 3, 16]), rng.choice([1, 150, 400, 10_000])
    found = framed(messages, np.array(order, np.int64), np.array(breaks, np.int64), events_max, bytes_max)
    expected = reference(messages, order, set(breaks), events_max, bytes_max)
    assert [order[low:high] for low, high in zip(found.starts, found.starts[1:], strict=False)] == expected
    for key, value, events_ in zip(found.keys.to_pylist(), found.values.to_pylist(), expected, strict=True):
        assert walked(key, value) == [(keys[event], values[event]) for event in events_]
