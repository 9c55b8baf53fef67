"""What PDs of other versions and in other states answer, and with which states a store may end a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest

from support.waiting import PATIENCE_S
from tistream.errors import InvalidRequest, Unavailable
from tistream.wire.tikv import cdcpb_pb2 as cdcpb
from tistream.wire.tikv import errorpb_pb2 as errorpb
from tistream.wire.tikv import keyspacepb_pb2 as keyspacepb
from tistream.wire.tikv import metapb_pb2 as metapb
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_agent.core.steps import KV_TIDB, OpenStream, Register, StreamEnded
from tistream_agent.inbox import Inbox
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.pd_leader import OtherCluster
from tistream_agent.upstream.raw_api import raw_refusal
from tistream_agent.upstream.stores import Channels, TlsFiles
from tistream_agent.upstream.streams import StoreStreams

CLUSTER = 77
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


class Member(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # gRPC's own class takes no parameters
    """A member of PD that answers what the test says, and UNIMPLEMENTED to all else. It serves the change stream of a
    store too, which `feed` answers."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.feed: Answer | None = None
        self.feed_name = "EventFeedV2"
        self.cluster_id, self.calls = CLUSTER, Counter[str]()
        self._server = grpc.server(ThreadPoolExecutor(8), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self.leads(self)
        self._server.start()

    def stop(self) -> None:
        """End all calls."""
        self._server.stop(None).wait()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        name = handler_call_details.method.rpartition("/")[2]
        self.calls[name] += 1
        if self.feed is not None and name == self.feed_name:
            feed = self.feed
            return grpc.stream_stream_rpc_method_handler(lambda asked, context: iter([feed(next(asked), context)]))
        answer = self.answers.get(name)
        return None if answer is None else grpc.unary_unary_rpc_method_handler(answer)

    def leads(self, leader: Member, *others: Member) -> None:
        """State from now on that `leader` leads, and that it and `others` are the members."""
        members = [pdpb.Member(client_urls=[f"http://{one.address}"]) for one in (leader, *others)]
        self.answers["GetMembers"] = lambda *_: pdpb.GetMembersResponse(
            header=self.header(), members=members, leader=members[0]
        ).SerializeToString()

    def header(self, kind: int = 0, message: str = "") -> pdpb.ResponseHeader:
        """The header of an answer; with `kind` one with an error of that type."""
        header = pdpb.ResponseHeader(cluster_id=self.cluster_id)
        if kind:
            header.error.CopyFrom(pdpb.Error(type=kind, message=message))  # type: ignore[arg-type]
        return header

    def stores(self) -> Answer:
        """Answer that this member's address is that of the one store."""
        store = metapb.Store(id=1, address=self.address, version="8.5.4")
        return lambda *_: pdpb.GetAllStoresResponse(header=self.header(), stores=[store]).SerializeToString()


def aborts(code: grpc.StatusCode, details: str) -> Answer:
    """Answer each call with a status."""

    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, details)
        raise AssertionError

    return answer


@pytest.fixture
def members() -> Iterator[Callable[[], Member]]:
    with ExitStack() as stack:

        def member() -> Member:
            made = Member()
            stack.callback(made.stop)
            return made

        yield member


def client(*members: Member, cluster_id: int | None = None) -> PdClient:
    return PdClient([one.address for one in members], Channels(TlsFiles()), cluster_id, deadline_s=PATIENCE_S)


def test_regions_of_an_old_pd_stand_beside_their_leaders(members: Callable[[], Member]) -> None:
    pd = members()
    metas = [metapb.Region(id=9, end_key=b"k"), metapb.Region(id=10, start_key=b"k")]
    pd.answers["ScanRegions"] = lambda *_: pdpb.ScanRegionsResponse(
        header=pd.header(), region_metas=metas, leaders=[metapb.Peer(id=1, store_id=4)]
    ).SerializeToString()
    found = list(client(pd).led_regions(b"", b""))
    assert [(one.region.region_id, one.region.leader_store) for one in found] == [(9, 4), (10, 0)]
    assert found[1].leader is None


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, "not leader"),
        (grpc.StatusCode.UNKNOWN, "is not leader"),
        (grpc.StatusCode.FAILED_PRECONDITION, "not leader"),
    ],
)
def test_a_member_that_does_not_lead_any_more_is_left_whatever_status_says_so(
    members: Callable[[], Member], code: grpc.StatusCode, details: str
) -> None:
    old, new = members(), members()
    old.answers["GetAllStores"] = aborts(code, details)
    new.answers["GetAllStores"] = new.stores()
    for one in (old, new):
        one.leads(old, new)
    pd = client(old, new)
    with pytest.raises(Unavailable, match=r"leader|UNIMPLEMENTED"):
        pd.stores()
    for one in (old, new):
        one.leads(new, old)
    assert [store.address for store in pd.stores()] == [new.address]


def test_a_member_that_is_cut_off_and_names_itself_hides_the_leader_of_the_others_not(
    members: Callable[[], Member],
) -> None:
    cut_off, leader, third = members(), members(), members()
    cut_off.leads(cut_off, leader, third)
    cut_off.answers["GetAllStores"] = aborts(grpc.StatusCode.UNAVAILABLE, "no leader")
    leader.answers["GetAllStores"] = leader.stores()
    for one in (leader, third):
        one.leads(leader, third, cut_off)
    pd = client(cut_off)
    assert [store.address for store in pd.stores()] == [leader.address]


def test_an_error_that_is_not_retried_is_followed_by_the_question_who_leads(members: Callable[[], Member]) -> None:
    pd = members()
    pd.answers["GetAllStores"] = aborts(grpc.StatusCode.FAILED_PRECONDITION, "mismatch cluster id, need 8 but got 77")
    asked = client(pd)
    with pytest.raises(Unavailable, match="mismatch cluster id"):
        asked.stores()
    assert pd.calls["GetAllStores"] == 1
    pd.cluster_id = 8  # as a restored cluster behind the same address
    with pytest.raises(OtherCluster):
        asked.stores()


def test_a_keyspace_that_does_not_exist_is_refused_by_its_name(members: Callable[[], Member]) -> None:
    pd = members()
    refusals = [pd.header(9, "ENTRY"), pd.header(1, "keyspace does not exist"), pd.header()]
    for header in refusals:
        pd.answers["LoadKeyspace"] = lambda *_, its=header: keyspacepb.LoadKeyspaceResponse(  # type: ignore[misc]
            header=its
        ).SerializeToString()
        with pytest.raises(InvalidRequest, match="no keyspace 'shop'"):
            client(pd).keyspace("shop")
    pd.answers["LoadKeyspace"] = lambda *_: keyspacepb.LoadKeyspaceResponse(
        header=pd.header(1, "not bootstrapped")
    ).SerializeToString()
    with pytest.raises(Unavailable, match="not bootstrapped"):
        client(pd).keyspace("shop")
    pd.answers["LoadKeyspace"] = lambda *_: keyspacepb.LoadKeyspaceResponse(
        header=pd.header(), keyspace=keyspacepb.KeyspaceMeta(id=7, name="shop")
    ).SerializeToString()
    assert client(pd).keyspace("shop") == 7


@pytest.mark.parametrize("keyspace", [7, 0xFFFFFFFF])
def test_a_pd_without_holds_is_refused_and_not_an_unexpected_error(
    members: Callable[[], Member], keyspace: int
) -> None:
    asked = client(members())
    with pytest.raises(InvalidRequest, match=r"no call SetGCBarrier.*upgrade PD"):
        asked.hold_gc("tistream-7-acme-1", 5, 60, keyspace)
    asked.release_gc("tistream-7-acme-1", keyspace)  # where nothing is held, nothing is to be released


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED])
def test_a_stream_that_a_store_ends_is_opened_again_whatever_status_it_has(
    members: Callable[[], Member], code: grpc.StatusCode
) -> None:
    pd, inbox = members(), Inbox()
    pd.answers["GetAllStores"], pd.feed = pd.stores(), aborts(code, "the memory quota is full")
    assert _ended(pd, inbox, Channels(TlsFiles())) == StreamEnded(3, f"{code.name}: the memory quota is full")


@pytest.mark.parametrize("name", ["EventFeedV2", "EventFeed"])
def test_a_store_is_asked_for_rawkv_on_the_change_stream_that_it_has(members: Callable[[], Member], name: str) -> None:
    store = members()
    error = cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=1))
    answers = [cdcpb.Event(region_id=1, request_id=1, error=error)]
    store.feed_name, store.feed = name, lambda *_: cdcpb.ChangeDataEvent(events=answers).SerializeToString()
    assert raw_refusal(Channels(TlsFiles()), store.address, CLUSTER, PATIENCE_S) == ""
    answers[0].error.CopyFrom(cdcpb.Error(compatibility=cdcpb.Compatibility(required_version="6.2.0")))
    assert "TiKV 6.2.0 or newer" in raw_refusal(Channels(TlsFiles()), store.address, CLUSTER, PATIENCE_S)


class Narrow(Channels):
    """Channels that receive no message above a small size."""

    def open(self, address: str) -> grpc.Channel:
        return grpc.insecure_channel(address.rpartition("://")[2], options=[("grpc.max_receive_message_length", 4_096)])


def test_a_message_that_is_too_large_here_makes_the_stream_unreadable(members: Callable[[], Member]) -> None:
    pd, inbox = members(), Inbox()
    pd.answers["GetAllStores"], pd.feed = pd.stores(), lambda *_: bytes(8_192)
    ended = _ended(pd, inbox, Narrow(TlsFiles()))
    assert ended.unreadable
    assert "larger than max" in ended.reason


def _ended(pd: Member, inbox: Inbox, channels: Channels) -> StreamEnded:
    """Open a stream to the store, send one request, and return the end of the stream."""
    asked = PdClient([pd.address], channels, deadline_s=PATIENCE_S)
    streams = StoreStreams(asked, channels, inbox, CLUSTER)
    streams.open(OpenStream(3, 1))
    streams.register(Register(3, 1, 9, 1, 1, 5, b"", b"", KV_TIDB))
    (ended,) = inbox.take(PATIENCE_S)
    assert isinstance(ended, StreamEnded)
    return ended
