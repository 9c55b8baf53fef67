"""Writes batches into the RawKV of a TiKV cluster. The keys of each region are sent to the region's leader, until it
has accepted them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import grpc
from sortedcontainers import SortedDict

from tistream.concurrency import new_lock
from tistream.errors import FatalError, Unavailable
from tistream.schema.tidb.meta_key import encode_bytes
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb
from tistream_agent.replay.batches import Batch
from tistream_agent.upstream.pd import LedRegion, PdClient
from tistream_agent.upstream.stores import Channels

PAUSE_S, PAUSE_MAX_S = 0.05, 5.0
_CALL_S = 20.0
# Of these a client may try again; any other status is an answer.
_RETRIED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
)


class WriteRefused(FatalError):
    """Raised if TiKV refuses a write for a reason that a retry would not change."""

    code = "write-refused"


class Stopping(Exception):
    """Raised if the process must end before a batch has been written completely."""


class RawWriter:
    """Writes batches of raw pairs into TiKV, each key at the leader of its region, and repeats writes that TiKV refuses
    temporarily. Thread-safe.

    Args:
        wait: pauses for seconds; returns True once the process must end.
        again: called with the reason of each attempt that is repeated.
    """

    def __init__(
        self, pd: PdClient, channels: Channels, wait: Callable[[float], bool], again: Callable[[str], None]
    ) -> None:
        self._pd, self._open, self._wait, self._again = pd, channels.open, wait, again
        self._lock = new_lock()
        self._regions: SortedDict[bytes, LedRegion] = SortedDict()  # by encoded start
        self._addresses: dict[int, str] = {}
        self._channels: dict[int, grpc.Channel] = {}

    def write(self, batch: Batch) -> None:
        """Write a batch. Returns once TiKV has accepted all of it. Raises WriteRefused if a retry would not help, and
        Stopping if the process must end first."""
        pause_s = PAUSE_S
        while len(batch):
            left, asked_s = self._attempt(batch)
            if not left:
                return
            pause_s = PAUSE_S if len(left) < len(batch) else min(2 * pause_s, PAUSE_MAX_S)
            batch = batch.part(left)
            if self._wait(min(max(pause_s, asked_s), PAUSE_MAX_S)):
                raise Stopping

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()

    def _attempt(self, batch: Batch) -> tuple[list[int], float]:
        """Send the changes of each region once. Returns the indexes of the changes that must be sent again, and the
        pause in seconds that TiKV requests."""
        left: list[int] = []
        asked_s = 0.0
        try:
            parts = self._routed(batch)
        except Unavailable as error:
            self._again(str(error))
            return list(range(len(batch))), 0.0
        for region, at in parts:
            if region is None or region.leader is None:
                self._again("PD knows no leader of a region")
                if region is not None:
                    self._forget(region)
                left += at
                continue
            problem, pause_s = self._send(region, batch.part(at))
            if problem:
                self._again(problem)
                left += at
                asked_s = max(asked_s, pause_s)
        return sorted(left), asked_s

    # -- regions --------------------------------------------------------------------------------------------------

    def _routed(self, batch: Batch) -> Iterable[tuple[LedRegion | None, list[int]]]:
        """Group the indexes of a batch's changes by region. The region None has the keys whose region PD does not
        know."""
        found: dict[bytes | None, tuple[LedRegion | None, list[int]]] = {}
        for at, key in enumerate(batch.keys):
            region = self._region(encode_bytes(key))
            name = None if region is None else region.region.encoded_start
            found.setdefault(name, (region, []))[1].append(at)
        return found.values()

    def _region(self, encoded: bytes) -> LedRegion | None:
        with self._lock:
            at = self._regions.bisect_right(encoded) - 1
            known: LedRegion | None = self._regions.peekitem(at)[1] if at >= 0 else None
        if known is not None and _has(known, encoded):
            return known
        for found in self._pd.led_regions(encoded, encoded + b"\x00"):
            if _has(found, encoded):
                self._keep(found)
                return found
        return None

    def _keep(self, region: LedRegion) -> None:
        with self._lock:
            self._regions[region.region.encoded_start] = region

    def _forget(self, region: LedRegion) -> None:
        with self._lock:
            self._regions.pop(region.region.encoded_start, None)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _send(self, region: LedRegion, batch: Batch) -> tuple[str, float]:
        """Send changes of one region to its leader. Returns the reason why they must be sent again (empty if they were
        accepted), and the pause in seconds that TiKV requests. Raises WriteRefused if a retry would not help."""
        assert region.leader is not None
        store = region.leader.store_id
        try:
            answer = self._call(store, region, batch)
        except grpc.RpcError as error:
            self._forget(region)
            code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
            if code not in _RETRIED:
                detail = error.details() if isinstance(error, grpc.Call) else error
                raise WriteRefused(f"store {store} answers {code.name}: {detail}") from error
            self._drop(store)
            return f"store {store}: {code.name}", 0.0
        except Unavailable as error:
            self._forget(region)
            return str(error), 0.0
        if answer.error:
            raise WriteRefused(f"store {store} refuses a write: {answer.error}")
        if not answer.HasField("region_error"):
            return "", 0.0
        return self._after(region, answer.region_error)

    def _after(self, region: LedRegion, error: Any) -> tuple[str, float]:
        number = region.region.region_id
        if error.HasField("server_is_busy"):
            return f"region {number}: the server is busy", error.server_is_busy.backoff_ms / 1_000
        if error.HasField("not_leader") and error.not_leader.leader.store_id:
            self._keep(replace(region, leader=error.not_leader.leader))
            return f"region {number} has another leader", 0.0
        self._forget(region)
        return f"region {number}: {error.message or 'it has moved'}", 0.0

    def _call(self, store: int, region: LedRegion, batch: Batch) -> Any:
        context = kvrpcpb.Context(
            region_id=region.region.region_id,
            region_epoch=region.meta.region_epoch,
            peer=region.leader,
            api_version=kvrpcpb.V2,
        )
        if batch.puts:
            pairs = [kvrpcpb.KvPair(key=key, value=value) for key, value in zip(batch.keys, batch.values, strict=True)]
            put = kvrpcpb.RawBatchPutRequest(context=context, pairs=pairs, ttls=batch.ttls)
            return self._method(store, "RawBatchPut", put, kvrpcpb.RawBatchPutResponse)
        delete = kvrpcpb.RawBatchDeleteRequest(context=context, keys=batch.keys)
        return self._method(store, "RawBatchDelete", delete, kvrpcpb.RawBatchDeleteResponse)

    def _method(self, store: int, name: str, request: Any, response: Any) -> Any:
        call = self._channel(store).unary_unary(
            f"/tikvpb.Tikv/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return call(request, timeout=_CALL_S)

    def _channel(self, store: int) -> grpc.Channel:
        with self._lock:
            known = self._channels.get(store)
        if known is not None:
            return known
        addresses = {one.store_id: one.address for one in self._pd.stores()}
        if store not in addresses:
            raise Unavailable(f"PD lists no store {store}")
        opened = self._open(addresses[store])
        with self._lock:
            kept = self._channels.setdefault(store, opened)
        if kept is not opened:
            opened.close()
        return kept

    def _drop(self, store: int) -> None:
        """Drop the connection to a store, so that the next one uses the store's present address."""
        with self._lock:
            self._channels.pop(store, None)


def _has(region: LedRegion, encoded: bytes) -> bool:
    span = region.region
    return span.encoded_start <= encoded and (not span.encoded_end or encoded < span.encoded_end)
