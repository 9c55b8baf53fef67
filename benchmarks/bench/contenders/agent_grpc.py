"""An agent of one region beside a PD and a TiKV that send what they are asked for, all over gRPC."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
from pyarrow import parquet as pq

from bench.contenders.agent import changes, rows_of
from tistream.clock import SystemClock
from tistream.concurrency import start_thread
from tistream.model.ids import TenantKey
from tistream.model.ts import from_physical_ms
from tistream.service.ids import random_id
from tistream.service.observe.metrics import new_registry
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_agent.core import steps
from tistream_agent.core.cutter import Draft
from tistream_agent.metrics import AgentMetrics
from tistream_agent.order import Order
from tistream_agent.run import TerritoryRun
from tistream_agent.settings import AgentSettings
from tistream_upstream.emulator.shared_cluster import bidirectional, unary

TENANT = TenantKey("7", "bench")
SLICES = 20  # of a second, in each of which a paced load is sent
_FEED = "/cdcpb.ChangeData/EventFeedV2"
_GO = "/bench.Load/Go"
_CLUSTER, _WAIT_S, _PATIENCE_S = 7, 0.002, 300
_OPTIONS = (("grpc.max_receive_message_length", -1),)


def _now_ts() -> int:
    return from_physical_ms(time.time_ns() // 1_000_000)


class Upstream:
    """The servers. The first call gives their port. `/bench.Load/Go` takes a JSON list [entries, rate, bytes of a
    value] and sends as many entries to the newest stream; rate 0: as fast as they are taken."""

    def __init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[self._pd(), self._store(), self._load()])
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._out: SimpleQueue[bytes] = SimpleQueue()
        self._request = steps.Register(1, 1, 1, 1, 1, 0, b"", b"", steps.KV_TIDB)
        self._made: dict[tuple[int, int], list[bytes]] = {}
        self._server.start()

    def __call__(self) -> int:
        return self._port

    def _pd(self) -> Any:
        header = pdpb.ResponseHeader(cluster_id=_CLUSTER)

        def members(_: Any, __: Any) -> Any:
            member = pdpb.Member(client_urls=[f"http://127.0.0.1:{self._port}"])
            return pdpb.GetMembersResponse(header=header, members=[member], leader=member)

        def tso(requests: Iterator[Any], _: Any) -> Iterator[Any]:
            for request in requests:
                now = pdpb.Timestamp(physical=time.time_ns() // 1_000_000, logical=request.count)
                yield pdpb.TsoResponse(header=header, count=request.count, timestamp=now)

        def stores(_: Any, __: Any) -> Any:
            store = metapb.Store(id=1, address=f"127.0.0.1:{self._port}", version="8.5.4")
            return pdpb.GetAllStoresResponse(header=header, stores=[store])

        def regions(_: Any, __: Any) -> Any:
            peer = metapb.Peer(id=1, store_id=1)
            region = metapb.Region(id=1, region_epoch=metapb.RegionEpoch(conf_ver=1, version=1), peers=[peer])
            return pdpb.BatchScanRegionsResponse(header=header, regions=[pdpb.Region(region=region, leader=peer)])

        def hold(request: Any, _: Any) -> Any:
            return pdpb.UpdateServiceGCSafePointResponse(header=header, min_safe_point=request.safe_point)

        calls = {
            "GetMembers": unary(members, pdpb.GetMembersRequest),
            "Tso": bidirectional(tso, pdpb.TsoRequest),
            "GetAllStores": unary(stores, pdpb.GetAllStoresRequest),
            "BatchScanRegions": unary(regions, pdpb.BatchScanRegionsRequest),
            "UpdateServiceGCSafePoint": unary(hold, pdpb.UpdateServiceGCSafePointRequest),
        }
        return grpc.method_handlers_generic_handler("pdpb.PD", calls)

    def _store(self) -> Any:
        def feed(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
            one = cdcpb.ChangeDataRequest.FromString(next(requests))
            self._request = steps.Register(1, one.request_id, 1, 1, 1, one.checkpoint_ts, b"", b"", steps.KV_TIDB)
            out: SimpleQueue[bytes] = SimpleQueue()
            self._out = out
            event = cdcpb.Event(region_id=1, request_id=one.request_id)
            event.entries.entries.add(type=cdcpb.Event.INITIALIZED)
            yield cdcpb.ChangeDataEvent(events=[event]).SerializeToString()
            while True:
                yield out.get()

        handler = grpc.stream_stream_rpc_method_handler(feed)
        return grpc.method_handlers_generic_handler("cdcpb.ChangeData", {"EventFeedV2": handler})

    def _load(self) -> Any:
        def go(body: bytes, _: Any) -> bytes:
            entries, rate, value_bytes = json.loads(body)
            if not rate:
                key = self._request.request_id, entries
                if key not in self._made:
                    self._made = {key: list(changes(self._request, entries, value_bytes, _now_ts()))}
                for message in self._made[key]:
                    self._out.put(message)
                return b""
            start_thread("load", lambda: self._pace(entries, rate, value_bytes))
            return b""

        return grpc.method_handlers_generic_handler("bench.Load", {"Go": grpc.unary_unary_rpc_method_handler(go)})

    def _pace(self, entries: int, rate: int, value_bytes: int) -> None:
        some, due, sent = rate // SLICES, time.perf_counter(), 0
        while sent < entries:
            for message in changes(self._request, some, value_bytes, _now_ts(), first=sent):
                self._out.put(message)
            sent += some
            due += 1 / SLICES
            time.sleep(max(0.0, due - time.perf_counter()))

    def close(self) -> None:
        """End the servers."""
        self._server.stop(0)


class OverGrpc:
    """The agent as it runs, and a directory for its files. A call asks for entries (`entries`, if it does not say how
    many) and returns once all of them are in files: the 99th percentile of the time from an entry's start_ts to its
    file, in seconds."""

    def __init__(self, port: int, entries: int, value_bytes: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        objects = DirectoryObjectStore(Path(self._folder.name))
        body = {"version": 1, "snapshot_ts": _now_ts(), "databases": []}
        objects.put(layout.schema_snap(TENANT), json.dumps(body).encode())
        self._entries, self._value_bytes = entries, value_bytes
        self._written, self._late_ms = 0, [np.zeros(0)]
        self._changed = threading.Condition()
        address = f"127.0.0.1:{port}"
        settings = AgentSettings(pd=address, cluster=TENANT.cluster_id, tenant=TENANT.tenant_id)
        order = Order(TENANT, 1, (address,), _CLUSTER)
        metrics = AgentMetrics(new_registry())
        self._run = TerritoryRun(order, settings, objects, SystemClock(), metrics, random_id, self._durable)
        self._thread = start_thread("agent", self._body)
        self._channel = grpc.insecure_channel(address)
        while self._run.status().by_state.get("live", 0) == 0:
            time.sleep(_WAIT_S)

    def _body(self) -> None:
        self._run.run()

    def _durable(self, draft: Draft) -> None:
        now_ms = time.time_ns() / 1e6
        with self._changed:
            for table in draft.changes:
                self._late_ms.append(now_ms - (table["start_ts"].to_numpy() >> 18))
                self._written += table.num_rows
            self._changed.notify_all()

    def __call__(self, entries: int = 0, rate: int = 0) -> float:
        entries = entries or self._entries
        with self._changed:
            wanted, self._late_ms = self._written + entries, [np.zeros(0)]
        _ask(self._channel, entries, rate, self._value_bytes)
        with self._changed:
            if not self._changed.wait_for(lambda: self._written >= wanted, _PATIENCE_S):
                raise AssertionError(f"{wanted - self._written} entries are missing: {self._run.status()}")
            return float(np.percentile(np.concatenate(self._late_ms), 99)) / 1_000

    def close(self) -> None:
        """End the agent."""
        self._run.stop()
        self._thread.join()
        self._folder.cleanup()


def _ask(channel: grpc.Channel, entries: int, rate: int, value_bytes: int) -> None:
    """Let `Upstream` send entries."""
    go: Any = channel.unary_unary(_GO, request_serializer=None, response_deserializer=None)
    go(json.dumps([entries, rate, value_bytes]).encode())


class PlainOverGrpc:
    """Reads the same stream by grpcio and protobuf's objects, row by row, into one Parquet file: the reference."""

    def __init__(self, port: int, entries: int, value_bytes: int) -> None:
        self._folder, self._entries, self._value_bytes = tempfile.TemporaryDirectory(), entries, value_bytes
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS)
        requests: SimpleQueue[bytes] = SimpleQueue()
        requests.put(cdcpb.ChangeDataRequest(request_id=1, region_id=1).SerializeToString())
        feed: Any = self._channel.stream_stream(_FEED, request_serializer=None, response_deserializer=None)
        self._messages = feed(iter(requests.get, None))
        next(self._messages)

    def __call__(self) -> None:
        _ask(self._channel, self._entries, 0, self._value_bytes)
        table = rows_of(self._messages, self._entries)
        path = Path(self._folder.name) / "rows.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=1, use_dictionary=False)

    def close(self) -> None:
        """End the stream."""
        self._channel.close()
        self._folder.cleanup()
