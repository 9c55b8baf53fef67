"""The threads of an agent share a connection to PD: a call that fails gives it up, and cuts no other call off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc
import pytest
import typer
from typer.testing import CliRunner

from support.waiting import PATIENCE_S, eventually
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_agent.command import register
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles

CLUSTER = 77
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


class Pd(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # gRPC's own class takes no parameters
    """A PD that answers a call for regions when `released` is set, and the first call for stores with UNAVAILABLE."""

    def __init__(self) -> None:
        self.calls, self.released, self.loses_regions = Counter[str](), Event(), False
        self.left_s: float | None = None  # until the last call for stores is given up
        self._server = grpc.server(ThreadPoolExecutor(8), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        """End all calls."""
        self.released.set()
        self._server.stop(None).wait()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        name = handler_call_details.method.rpartition("/")[2]
        answers: dict[str, Answer] = {
            "GetMembers": self._members,
            "GetAllStores": self._stores,
            "BatchScanRegions": self._regions,
        }
        return grpc.unary_unary_rpc_method_handler(answers[name])

    def _members(self, _: bytes, __: grpc.ServicerContext) -> bytes:
        self.calls["members"] += 1
        leader = pdpb.Member(client_urls=[f"http://{self.address}"])
        header = pdpb.ResponseHeader(cluster_id=CLUSTER)
        return pdpb.GetMembersResponse(header=header, members=[leader], leader=leader).SerializeToString()

    def _stores(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls["stores"] += 1
        self.left_s = context.time_remaining()
        if self.calls["stores"] == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "this member restarts")
        header = pdpb.ResponseHeader(cluster_id=CLUSTER)
        store = metapb.Store(id=1, address="127.0.0.1:1", version="v8.5.4")
        return pdpb.GetAllStoresResponse(header=header, stores=[store]).SerializeToString()

    def _regions(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls["regions"] += 1
        first = self.calls["regions"] == 1
        self.released.wait(PATIENCE_S)
        if first and self.loses_regions:
            context.abort(grpc.StatusCode.UNAVAILABLE, "this member restarts")
        region = pdpb.Region(region=metapb.Region(id=9), leader=metapb.Peer(store_id=1))
        header = pdpb.ResponseHeader(cluster_id=CLUSTER)
        return pdpb.BatchScanRegionsResponse(header=header, regions=[region]).SerializeToString()


@pytest.fixture
def pd() -> Iterator[Pd]:
    served = Pd()
    yield served
    served.stop()


@pytest.mark.parametrize("loses_regions", [False, True])
def test_a_call_that_fails_cuts_off_no_other(pd: Pd, *, loses_regions: bool) -> None:
    pd.loses_regions = loses_regions
    client = PdClient([pd.address], Channels(TlsFiles()), deadline_s=PATIENCE_S)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(client.regions, b"", b"")
        eventually(lambda: pd.calls["regions"] == 1)
        assert [store.store_id for store in client.stores()] == [1]
        pd.released.set()
        assert [region.region_id for region in slow.result(PATIENCE_S)] == [9]
    assert pd.calls["regions"] == 1 + loses_regions, "the call on the connection that was given up ended by itself"
    assert pd.calls["members"] == 2, "the connection that was made meanwhile is used on"
    client.close()
    assert [store.store_id for store in client.stores()] == [1]


def test_a_command_takes_the_limit_of_its_calls_from_its_option_or_from_the_environment(pd: Pd, tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    given = ["connect", "--pd", pd.address, "--objects", f"file://{tmp_path}", "--cluster", "7", "--tenant", "a"]
    for option, environment in (["--call-timeout", "3000"], {}), ([], {"TISTREAM_CALL_TIMEOUT": "3000"}):
        done = CliRunner(env=environment).invoke(app, [*given, "--dry-run", *option])
        assert "store 1 at 127.0.0.1:1 does not answer" in done.output
        assert pd.left_s is not None
        assert pd.left_s > PATIENCE_S
