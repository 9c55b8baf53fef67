"""Finds the member of PD that leads, and keeps the connection to it, which the threads of an agent share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from tistream.concurrency import new_rlock
from tistream.errors import FatalError, InvalidRequest, Unavailable
from tistream.wire.tikv import pdpb_pb2 as pdpb
from tistream_agent.upstream.stores import Channels

R = TypeVar("R", bound=Message)


class OtherCluster(FatalError):
    """Raised if PD belongs to another cluster than the one for which this agent was started, so the agent must not use
    it."""

    code = "cluster_id_mismatch"


class LeaderConnection:
    """A channel to PD's leader. It is closed once it has been given up and no call uses it any more, so that calls of
    other threads on it are not interrupted."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.calls = 0  # that use the channel now
        self.given_up = False

    def close_if_unused(self) -> None:
        """Close the channel if it has been given up and no call uses it."""
        if self.given_up and not self.calls:
            self.channel.close()


class PdLeader:
    """Finds PD's leader and connects to it. Thread-safe.

    Args:
        addresses: those of some or all members.
        cluster_id: the id of the cluster that PD must belong to; None for the one in the first answer.
        on_call: counts calls by the name of their rpc.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        channels: Channels,
        cluster_id: int | None,
        on_call: Callable[[str], object],
        deadline_s: float,
    ) -> None:
        if not addresses:
            raise InvalidRequest("no address of PD: --pd host:2379")
        self._addresses = list(addresses)
        self._open = channels.open
        self._expected = cluster_id
        self._on_call = on_call
        self._deadline_s = deadline_s
        self._lock = new_rlock()
        self._connection: LeaderConnection | None = None
        self._named_by = ""  # the address of the member that has named the leader

    @property
    def expected_id(self) -> int | None:
        """The id of the cluster that PD must belong to; None if none was given and no PD has answered yet."""
        return self._expected

    @property
    def cluster_id(self) -> int:
        """The id of the cluster. The first call asks PD for it."""
        with self._lock:
            if self._expected is None or self._connection is None:
                self._connect()
            assert self._expected is not None
            return self._expected

    def take(self) -> LeaderConnection:
        """The connection to the leader, for a call that ends with `put_back`. Raises Unavailable, OtherCluster."""
        with self._lock:
            connection = self._connection or self._connect()
            connection.calls += 1
            return connection

    def put_back(self, connection: LeaderConnection) -> None:
        """Record that a call has ended, which got the connection from `take`."""
        with self._lock:
            connection.calls -= 1
            connection.close_if_unused()

    @contextmanager
    def taken(self) -> Iterator[LeaderConnection]:
        """Take the connection to the leader for a `with` block, and put it back at the block's end. Raises the errors
        of `take`."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.put_back(connection)

    def give_up(self, connection: LeaderConnection) -> None:
        """Do not use a connection for further calls: the next call asks PD's members for their leader, and last the
        member that has named this one, because it may be cut off from the others. Other calls that use the connection
        go on, and a connection that another thread has made since is kept."""
        with self._lock:
            if connection is self._connection:
                self._connection = None
                self._addresses.sort(key=lambda address: _place(address) == _place(self._named_by))
            connection.given_up = True
            connection.close_if_unused()

    def close(self) -> None:
        """Give the connection up; later calls open a new one."""
        with self._lock:
            if self._connection is not None:
                self.give_up(self._connection)

    def _connect(self) -> LeaderConnection:
        """Ask PD's members, one after the other, for the leader, and connect to it. Raises Unavailable if no member
        names one, and OtherCluster."""
        problems, failed = [], dict[str, str]()
        for address in list(self._addresses):
            try:
                with self._open(address) as channel:
                    self._on_call("GetMembers")
                    found = unary(channel, "pdpb.PD", "GetMembers", pdpb.GetMembersResponse)(
                        pdpb.GetMembersRequest(), timeout=self._deadline_s
                    )
            except grpc.RpcError as error:
                problems.append(f"{address}: {reason(error)}")
                failed[_place(address)] = address
                continue
            cluster = int(found.header.cluster_id)
            if self._expected is not None and cluster != self._expected:
                raise OtherCluster(
                    f"PD at {address} is of cluster {cluster}, and this agent of cluster {self._expected}: "
                    "correct --pd, or connect the other cluster as a tenant of its own"
                )
            if not found.leader.client_urls:
                problems.append(f"{address}: PD has no leader")
                failed[_place(address)] = address
                continue
            self._expected, self._named_by = cluster, address
            known = [url for member in found.members for url in member.client_urls]
            others = {_place(one): one for one in reversed([*self._addresses, *known])}
            # An address that PD does not name any more comes last: another cluster may have it by now.
            named = {_place(one) for one in known}
            places = sorted(map(_place, [*self._addresses, *known]), key=lambda place: place not in named)
            here = dict.fromkeys(place for place in places if place not in failed)
            self._addresses = [others[place] for place in [*here, *failed]]
            self._connection = LeaderConnection(self._open(found.leader.client_urls[0]))
            return self._connection
        raise Unavailable(f"no PD answers: {'; '.join(problems)}")


def _place(address: str) -> str:
    """The part of a member's address that does not depend on whether its scheme is written."""
    return address.rpartition("://")[2].rstrip("/")


def unary(channel: grpc.Channel, service: str, rpc: str, response: type[R]) -> Callable[..., R]:
    """Make a function that sends one request to the gRPC method `rpc` of `service`, and returns the answer, a
    `response`."""
    call: Callable[..., R] = channel.unary_unary(
        f"/{service}/{rpc}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )
    return call


def reason(error: BaseException) -> str:
    """The text of an error: of a gRPC error its status and its details, of another one its text or the name of its
    type."""
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
