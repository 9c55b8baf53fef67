"""The agent's core with answers that come at once: everything but gRPC, PD's work and object storage."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import parquet as pq

from bench.inputs import regions as cluster
from tistream.model.ids import TenantKey
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream_agent.core import steps
from tistream_agent.core.machine import TerritoryAgent

TICK_MS = 20  # of the driver
SECOND_MS = 1_000
_BATCH = 2_000  # messages that the loop takes at once
_TENANT = TenantKey("7", "bench")
_ROW_COLUMNS = ("type", "op_type", "key", "value", "old_value", "start_ts", "commit_ts")


class Agent:
    """A territory whose regions are all subscribed by `start`."""

    def __init__(self, count: int) -> None:
        self._regions = cluster.regions(count)
        self._position = cluster.position(count)
        self._second = 0
        self._begin()

    def _begin(self) -> None:
        self._machine = TerritoryAgent(steps.AgentConfig(_TENANT, 1, "ab" * 8), self._position)
        self._now_ms, self._last_ts = 0, cluster.BASE_TS + (SECOND_MS << 18)
        self._requests: dict[int, steps.Register] = {}
        self.bytes = 0

    def start(self) -> int:
        """Begin at the chain's position; returns the regions whose scans have ended."""
        self._begin()
        while len(self._requests) < len(self._regions) or self._machine.subscriptions.scanning():
            self.tick()
        return len(self._requests)

    def tick(self) -> None:
        """Let one tick of the driver pass."""
        self._now_ms += TICK_MS
        self._give(steps.Tick())

    def receive(self, messages: dict[int, list[bytes]]) -> None:
        """Take messages by stream."""
        for stream, its in messages.items():
            for at in range(0, len(its), _BATCH):
                self._give(steps.Received(stream, its[at : at + _BATCH]))

    def resolved(self) -> dict[int, list[bytes]]:
        """What TiKV tells of all regions in the next second."""
        self._second += 1
        ts = cluster.BASE_TS + ((SECOND_MS + self._second) << 18)
        return cluster.resolved(self._requests.values(), ts)

    @property
    def lowest_ts(self) -> int:
        """What all regions have reached."""
        return self._machine.lowest().ts

    def first(self) -> steps.Register:
        """The registration of the first region."""
        return self._requests[1]

    def _give(self, event: steps.Event) -> None:
        todo = deque(self._machine.step(event, self._now_ms))
        while todo:
            for answer in self._answers(todo.popleft()):
                todo.extend(self._machine.step(answer, self._now_ms))

    def _answers(self, command: steps.Command) -> Iterator[steps.Event]:
        match command:
            case steps.PutFile(draft=draft):
                self.bytes += len(draft.data())
                yield steps.FileDurable(draft.ts)
            case steps.MoveHold(ts=ts):
                yield steps.HoldSet(ts)
            case steps.ScanRegions(scan=scan):
                yield steps.RegionsFound(scan, self._regions)
            case steps.TakeTimestamps(call=call, count=count):
                self._last_ts += count
                yield steps.TimestampsTaken(call, self._last_ts)
            case steps.Register():
                self._requests[command.region_id] = command
                yield steps.Received(command.stream, [cluster.initialized(command)])
            case steps.Stop(reason=reason):
                raise AssertionError(reason)


class AtRest(Agent):
    """A call is a second of a cluster in which nothing is written."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.start()
        self._next = self.resolved()

    def prepare(self) -> None:
        """Make the next second's messages."""
        self._next = self.resolved()

    def __call__(self) -> None:
        self.receive(self._next)
        for _ in range(SECOND_MS // TICK_MS):
            self.tick()
        assert self.lowest_ts >= cluster.BASE_TS + ((SECOND_MS + self._second) << 18)


class Restart(Agent):
    """A call is a restart: from the last file's promises to the end of all scans."""

    def __call__(self) -> int:
        return self.start()


class Entries(Agent):
    """A call takes prewrites with old values and their commits, and makes the file's bytes of them."""

    def __init__(self, entries: int, value_bytes: int) -> None:
        super().__init__(1)
        self.start()
        self._messages = list(changes(self.first(), entries, value_bytes))

    def __call__(self) -> int:
        before = self.bytes
        self.receive({self.first().stream: self._messages})
        for _ in range(2 * SECOND_MS // TICK_MS):
            self.tick()
        return self.bytes - before


class PlainEntries:
    """The same messages by protobuf's own objects, row by row, into one Parquet file: the reference."""

    def __init__(self, entries: int, value_bytes: int) -> None:
        request = steps.Register(1, 1, 1, 1, 1, cluster.BASE_TS, b"", b"", steps.KV_TIDB)
        self._messages = list(changes(request, entries, value_bytes))

    def __call__(self) -> int:
        table = rows_of(self._messages)
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd", compression_level=1, use_dictionary=False)
        return int(out.tell())


def rows_of(messages: Iterable[bytes], most: int = 0) -> pa.Table:
    """The rows of messages by protobuf's own objects; with `most`, until there are as many."""
    columns: dict[str, list[object]] = {name: [] for name in _ROW_COLUMNS}
    for message in messages:
        for event in cdcpb.ChangeDataEvent.FromString(message).events:
            for row in event.entries.entries:
                for name in _ROW_COLUMNS:
                    columns[name].append(getattr(row, name))
        if most and len(columns["key"]) >= most:
            break
    return pa.table(columns)


def changes(
    request: steps.Register,
    entries: int,
    value_bytes: int,
    from_ts: int = cluster.BASE_TS + (SECOND_MS << 18),
    first: int = 0,
) -> Iterator[bytes]:
    """Messages of 64 events with two rows each, as a TiKV under load sends them; half of the changes are updates.
    `first`: the number of the first key."""
    rng, message = random.Random(1), cdcpb.ChangeDataEvent()
    for number in range(entries // 2):
        event = message.events.add(region_id=request.region_id, request_id=request.request_id)
        start_ts = from_ts + 2 * number
        key = b"t" + (1 << 63 | 5).to_bytes(8, "big") + b"_r" + (1 << 63 | first + number).to_bytes(8, "big")
        old = rng.randbytes(value_bytes) if number % 2 else b""
        event.entries.entries.add(
            type=cdcpb.Event.PREWRITE,
            op_type=cdcpb.Event.Row.PUT,
            key=key,
            value=rng.randbytes(value_bytes),
            old_value=old,
            start_ts=start_ts,
        )
        event.entries.entries.add(
            type=cdcpb.Event.COMMIT, op_type=cdcpb.Event.Row.PUT, key=key, start_ts=start_ts, commit_ts=start_ts + 1
        )
        if len(message.events) == 64:
            yield message.SerializeToString()
            message = cdcpb.ChangeDataEvent()
    if message.events:
        yield message.SerializeToString()
