"""The emulated cluster over real gRPC: what clients receive, what they are refused."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest

from support.certificates import Authority
from support.golden_streams import FOLDER, SCHEMA, SPANS, expected
from support.puller import Puller
from support.waiting import PATIENCE_S, eventually
from tistream.clock import SystemClock
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_upstream.emulator.golden import GoldenSet
from tistream_upstream.emulator.model.meta_rows import meta_rows
from tistream_upstream.emulator.model.region import raw_bound
from tistream_upstream.emulator.servers import Certificates, EmulatedCluster

FEATURES = (("features", "stream-multiplexing"),)
V2, V1 = "/cdcpb.ChangeData/EventFeedV2", "/cdcpb.ChangeData/EventFeed"


def call(channel: grpc.Channel, path: str, request: Any, response: Any) -> Any:
    method = channel.unary_unary(
        path, request_serializer=lambda one: one.SerializeToString(), response_deserializer=response.FromString
    )
    return method(request, timeout=PATIENCE_S)


class Stream:
    """A stream to one store; what it receives goes to `inbox` as (store, message), None at its end."""

    def __init__(
        self,
        address: str,
        store: int,
        inbox: queue.SimpleQueue[tuple[int, Any]],
        path: str = V2,
        features: Any = FEATURES,
    ) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 256 << 20)])
        self.requests: queue.SimpleQueue[cdcpb.ChangeDataRequest | None] = queue.SimpleQueue()
        self.code: grpc.StatusCode | None = None
        feed = self.channel.stream_stream(
            path,
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=cdcpb.ChangeDataEvent.FromString,
        )
        self._answers = feed(iter(self.requests.get, None), metadata=features)
        self._inbox, self._store = inbox, store
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            for message in self._answers:
                self._inbox.put((self._store, message))
        except grpc.RpcError as error:
            self.code = error.code()
        self._inbox.put((self._store, None))

    def close(self) -> None:
        self.requests.put(None)
        self._answers.cancel()  # type: ignore[no-untyped-call]
        self.thread.join(PATIENCE_S)
        self.channel.close()


class Client:
    """The test's client over gRPC: PD's regions, a stream a store."""

    def __init__(self, pd_address: str, golden: GoldenSet, name: str, path: str = V2) -> None:
        self.pd = grpc.insecure_channel(pd_address)
        self.header = pdpb.RequestHeader(cluster_id=golden.meta["cluster_id"])
        stores = call(
            self.pd, "/pdpb.PD/GetAllStores", pdpb.GetAllStoresRequest(header=self.header), pdpb.GetAllStoresResponse
        )
        self.addresses = {store.id: store.address for store in stores.stores}
        self.streams: dict[int, Stream] = {}
        self.inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self.path = path
        base_ts = golden.meta["base_ts"]
        spans = SPANS[name] if path == V2 else [(SPANS[name][0][0], SPANS[name][-1][1])]
        self.puller = Puller(
            self.regions, golden.meta["cluster_id"], [(*span, base_ts) for span in spans], int(name == "raw")
        )

        if path == V1:
            self.puller.whole = spans[0]

    def regions(self, start: bytes, end: bytes) -> list[pdpb.Region]:
        request = pdpb.ScanRegionsRequest(header=self.header, start_key=start, end_key=end, limit=1_024)
        return list(call(self.pd, "/pdpb.PD/ScanRegions", request, pdpb.ScanRegionsResponse).regions)

    def follow(self, until_ts: int) -> None:
        while self.puller.resolved < until_ts:
            for store, request in self.puller.requests():
                if store not in self.streams:
                    features = FEATURES if self.path == V2 else ()
                    self.streams[store] = Stream(self.addresses[store], store, self.inbox, self.path, features)
                self.streams[store].requests.put(request)
            try:
                store, message = self.inbox.get(timeout=0.05)
            except queue.Empty:
                continue
            while True:
                if message is None:
                    self.streams.pop(store).close()
                    self.puller.lost(store)
                else:
                    self.puller.receive(store, message)
                if self.inbox.empty():
                    break
                store, message = self.inbox.get()

    def close(self) -> None:
        for stream in self.streams.values():
            stream.close()
        self.pd.close()


def follow(name: str, path: str = V2, version: str = "") -> EmulatedCluster:
    """A client that follows the whole set; fails if it misses a change."""
    golden = GoldenSet.read(FOLDER / name)
    with EmulatedCluster(golden.upstream(version=version), SystemClock(), speed=5.0, held=True) as served:
        client = Client(served.pd_address, golden, name, path)
        client.follow(golden.end_ts)
        client.close()
    assert client.puller.changes == expected(name)
    return served


@pytest.mark.parametrize("name", ["everything", "raw"])
def test_a_client_receives_every_change_over_grpc(name: str) -> None:
    served = follow(name)
    assert served.counters.sent_bytes > 0
    assert served.counters.errors["stream_ended"] > 0


def test_a_client_of_the_first_protocol_receives_every_change() -> None:
    follow("everything", V1, "6.5.3")


@pytest.fixture
def held() -> Iterator[EmulatedCluster]:
    """A cluster whose time stands."""
    golden = GoldenSet.read(FOLDER / "everything")
    upstream = golden.upstream(schema=SCHEMA, busy=0.0)
    with EmulatedCluster(upstream, SystemClock(), held=True) as served:
        yield served


def test_the_schema_is_read_from_the_meta_keys(held: EmulatedCluster) -> None:
    cluster_id = held.shared.upstream.config.cluster_id
    header = pdpb.RequestHeader(cluster_id=cluster_id)
    with grpc.insecure_channel(held.pd_address) as pd:
        members = call(pd, "/pdpb.PD/GetMembers", pdpb.GetMembersRequest(), pdpb.GetMembersResponse)
        assert members.header.cluster_id == cluster_id
        assert members.leader.client_urls == [f"http://{held.pd_address}"]
        tso = pd.stream_stream(
            "/pdpb.PD/Tso",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=pdpb.TsoResponse.FromString,
        )
        (first, second) = tso(iter([pdpb.TsoRequest(header=header, count=10), pdpb.TsoRequest(header=header, count=1)]))
        ts = first.timestamp.physical << 18 | first.timestamp.logical
        assert second.timestamp.physical << 18 | second.timestamp.logical == ts + 1
        found = call(
            pd, "/pdpb.PD/GetRegion", pdpb.GetRegionRequest(header=header, region_key=b"m"), pdpb.GetRegionResponse
        )
    with grpc.insecure_channel(held.shared.addresses[found.leader.store_id]) as store:
        context = kvrpcpb.Context(region_id=found.region.id, region_epoch=found.region.region_epoch, peer=found.leader)
        request = kvrpcpb.ScanRequest(context=context, start_key=b"m", end_key=b"n", limit=10_000, version=ts)
        answer = call(store, "/tikvpb.Tikv/KvScan", request, kvrpcpb.ScanResponse)
    low, high = raw_bound(found.region.start_key), raw_bound(found.region.end_key)
    rows = {row.key: row.value for row in meta_rows(orjson.loads(SCHEMA.read_bytes()))}
    assert {pair.key: pair.value for pair in answer.pairs} == {k: v for k, v in rows.items() if low <= k < high}
    assert answer.pairs


def test_an_unknown_feature_is_unimplemented(held: EmulatedCluster) -> None:
    inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    stream = Stream(held.shared.addresses[1], 1, inbox, features=(("features", "telepathy"),))
    assert inbox.get(timeout=PATIENCE_S) == (1, None)
    assert stream.code is grpc.StatusCode.UNIMPLEMENTED
    stream.close()


def test_pd_refuses_another_cluster(held: EmulatedCluster) -> None:
    request = pdpb.GetGCSafePointRequest(header=pdpb.RequestHeader(cluster_id=5))
    with grpc.insecure_channel(held.pd_address) as pd, pytest.raises(grpc.RpcError, match="mismatch cluster id"):
        call(pd, "/pdpb.PD/GetGCSafePoint", request, pdpb.GetGCSafePointResponse)


def test_a_stream_that_its_client_ends_leaves_no_subscription(held: EmulatedCluster) -> None:
    inbox: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    stream = Stream(held.shared.addresses[1], 1, inbox)
    eventually(lambda: held.shared.upstream.stores[1].feeds)
    stream.close()
    eventually(lambda: not held.shared.upstream.stores[1].feeds)


def test_tls_refuses_a_client_without_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    server, client = authority.sign("server"), authority.sign("client")
    for found, name in ((authority.file, "ca"), (server.cert_file, "server"), (server.key_file, "server-key")):
        (tmp_path / "tls").mkdir(exist_ok=True)
        (tmp_path / "tls" / f"{name}.pem").write_bytes(found.read_bytes())
    other = Authority(tmp_path, "other").sign("stranger")
    upstream = GoldenSet.read(FOLDER / "everything").upstream()
    trusted = authority.file.read_bytes()
    with EmulatedCluster(upstream, SystemClock(), held=True, certificates=Certificates.of(tmp_path / "tls")) as served:
        for shown, accepted in ((client, True), (None, False), (other, False)):
            pair = (None, None) if shown is None else (shown.key_file.read_bytes(), shown.cert_file.read_bytes())
            credentials = grpc.ssl_channel_credentials(trusted, *pair)
            with grpc.secure_channel(served.pd_address, credentials) as pd:
                if accepted:
                    found = call(pd, "/pdpb.PD/GetMembers", pdpb.GetMembersRequest(), pdpb.GetMembersResponse)
                    assert found.leader.client_urls == [f"https://{served.pd_address}"]
                else:
                    with pytest.raises(grpc.RpcError) as refused:
                        call(pd, "/pdpb.PD/GetMembers", pdpb.GetMembersRequest(), pdpb.GetMembersResponse)
                    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
