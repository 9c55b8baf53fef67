"""The wire scanner reads what protobuf reads, and refuses what protobuf refuses."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from support import agent_replay, cdcpb
from tistream_agent.core import kernels as k
from tistream_agent.core.scanner import BrokenMessage, Scanned, scan
from tistream_agent.core.wire import ErrorKind

ERRORS = [field.name for field in cdcpb.Error.DESCRIPTOR.fields]
_KINDS = {"entries": k.ENTRIES, "error": k.ERROR, "resolved_ts": k.RESOLVED}


def signed(value: int) -> int:
    """An unsigned 64-bit number as the tables hold it."""
    return value - (1 << 64) if value >= 1 << 63 else value


def by_protobuf(message: bytes) -> list[Any]:
    """The items of a message, with their rows. Raises DecodeError."""
    parsed = cdcpb.ChangeDataEvent.FromString(message)
    out: list[Any] = []
    for event in parsed.events:
        kind = event.WhichOneof("event")
        rows = [
            (
                *(row.type, row.op_type, signed(row.start_ts), signed(row.commit_ts), row.key, row.value),
                *(row.old_value, signed(row.expire_ts_unix_secs), signed(row.txn_source), signed(row.generation)),
            )
            for row in event.entries.entries
        ]
        ts = signed(event.resolved_ts)
        out.append((_KINDS.get(kind, k.NOTHING), signed(event.request_id), signed(event.region_id), ts, rows))
    tail = parsed.resolved_ts
    out += [(k.RESOLVED, signed(tail.request_id), signed(one), signed(tail.ts), []) for one in tail.regions]
    return out


def by_scanner(found: Scanned) -> list[Any]:
    out: list[Any] = []
    for item in range(found.items.shape[1]):
        kind, request, region, ts, first, beyond = found.items[: k.ROW_BEYOND + 1, item].tolist()
        rows = []
        for row in range(first, beyond):
            c = found.rows[:, row].tolist()
            texts = [found.data[c[at] : c[at] + c[at + 1]].tobytes() for at in (k.KEY_AT, k.VALUE_AT, k.OLD_AT)]
            rows.append((c[k.TYPE], c[k.OP], c[k.START_TS], c[k.COMMIT_TS], *texts, *c[k.EXPIRE :]))
        out.append((kind, request, region, ts if kind == k.RESOLVED else 0, rows))
    return out


def ordered(items: list[Any]) -> list[Any]:
    """Protobuf has lost the order between Events and a ResolvedTs, which a message never has together."""
    return sorted(items, key=repr)


U64 = st.integers(0, (1 << 64) - 1)
ROWS = st.builds(
    cdcpb.Row,
    start_ts=U64,
    commit_ts=U64,
    type=st.integers(0, 6),
    op_type=st.integers(0, 3),
    key=st.binary(max_size=20),
    value=st.binary(max_size=300),
    old_value=st.binary(max_size=5),
    expire_ts_unix_secs=U64,
    txn_source=U64,
    generation=U64,
)


@st.composite
def events(draw: st.DrawFn) -> Any:
    event = cdcpb.Event(region_id=draw(U64), request_id=draw(U64), index=draw(U64))
    match draw(st.sampled_from(["entries", "error", "resolved_ts", "admin", "none"])):
        case "entries":
            event.entries.entries.extend(draw(st.lists(ROWS, max_size=4)))
        case "error":
            getattr(event.error, draw(st.sampled_from(ERRORS))).SetInParent()
        case "resolved_ts":
            event.resolved_ts = draw(U64)
        case "admin":
            event.admin.cmd = b"x"
    return event


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    message = cdcpb.ChangeDataEvent()
    message.events.extend(draw(st.lists(events(), max_size=4)))
    if draw(st.booleans()):
        message.resolved_ts.regions.extend(draw(st.lists(U64, max_size=4)))
        message.resolved_ts.ts, message.resolved_ts.request_id = draw(U64), draw(U64)
    data: bytes = message.SerializeToString()
    return data


@given(st.lists(messages(), max_size=5))
def test_it_reads_what_protobuf_reads(found: list[bytes]) -> None:
    expected = [item for one in found for item in by_protobuf(one)]
    assert ordered(by_scanner(scan(found))) == ordered(expected)


@given(messages(), st.data())
def test_damaged_bytes_are_refused_or_read_as_protobuf_reads_them(message: bytes, data: st.DataObject) -> None:
    damaged = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    agree(bytes(damaged))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_golden_messages_are_refused_or_read_as_protobuf_reads_them(seed: int) -> None:
    rng = random.Random(seed)
    frames = agent_replay.recorded("everything").frames
    for frame in rng.sample(frames, 150):
        damaged = bytearray(frame.message)
        for _ in range(rng.randint(0, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        agree(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged) + 1)])]))


def agree(message: bytes) -> None:
    try:
        expected = by_protobuf(message)
    except DecodeError:
        expected = None
    try:
        found = by_scanner(scan([message]))
    except BrokenMessage:
        found = None
    if expected is None and found is not None:
        # What no row needs is not looked into: texts of errors, and administrative commands.
        kinds = {item[0] for item in found}
        assert kinds & {k.ERROR, k.NOTHING}, message.hex()
        return
    assert (None if found is None else ordered(found)) == (None if expected is None else ordered(expected))


@pytest.mark.parametrize("name", agent_replay.NAMES)
def test_every_recorded_message_is_read_as_protobuf_reads_it(name: str) -> None:
    found = [frame.message for frame in agent_replay.recorded(name).frames][:: 3 if name == "large" else 1]
    scanned = scan(found)
    assert by_scanner(scanned) == [item for one in found for item in by_protobuf(one)]
    assert scanned.rows.shape[1] > 2_000


def test_unpacked_regions_are_read() -> None:
    message = b"\x12\x08\x08\x05\x08\x06\x10\x07\x18\x08"
    assert by_scanner(scan([message])) == [(k.RESOLVED, 8, 5, 7, []), (k.RESOLVED, 8, 6, 7, [])]


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_is_named(name: str) -> None:
    message = cdcpb.ChangeDataEvent()
    event = message.events.add(region_id=1, request_id=2)
    error = getattr(event.error, name)
    error.SetInParent()
    if name == "not_leader":
        error.leader.store_id = 4
    if name == "server_is_busy":
        error.reason, error.backoff_ms = "queue", 70
    found = scan([message.SerializeToString()])
    (item,) = np.flatnonzero(found.items[k.KIND] == k.ERROR).tolist()
    parsed = found.error(item)
    assert parsed.kind is ErrorKind[name.upper()]
    assert (parsed.leader_store, parsed.backoff_ms) == (4 * (name == "not_leader"), 70 * (name == "server_is_busy"))
