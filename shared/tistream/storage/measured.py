"""Counts requests to an object store, by kind and by tenant: for the bill, metrics and tests."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tistream.concurrency import new_lock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.multipart import put_requests
from tistream.storage.object_store import Body, ObjectInfo, ObjectStore

LIST_PAGE = 1000  # entries per LIST request
KINDS = ("get", "head", "put", "put_new", "put_if", "list", "delete")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counts of requests to the store (`requests`, including failed ones), of the failed ones among them, and of the
    bytes of bodies that were transferred."""

    requests: int = 0
    failures: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


@runtime_checkable
class CountsRequests(Protocol):
    """A store that knows how many HTTP requests its calls have made. Parts, retries and pages of a LIST count as
    requests of their own."""

    def requests_made(self) -> tuple[int, int]:
        """The number of requests that the calling thread has made so far, and how many of them failed."""

    def probes_made(self) -> int:
        """How many of the calling thread's requests belong to no tenant, because they only tested whether the store
        obeys conditional puts."""


class MeasuredObjectStore:
    """Implements ObjectStore around another store. Thread-safe if that store is.

    If the inner store counts its requests, its numbers are used; otherwise requests are counted as S3 would bill the
    calls.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.counting = inner if isinstance(inner, CountsRequests) else None
        self._lock = new_lock()
        self._traffic = dict.fromkeys(KINDS, Traffic())
        self._requests: dict[TenantKey, Counter[str]] = {}

    def requests_of_tenants(self) -> dict[TenantKey, dict[str, int]]:
        """Requests so far for each tenant and kind, including failed ones. Not included are requests for objects that
        belong to no tenant, and LIST requests that cover more than one tenant."""
        with self._lock:
            return {tenant: dict(made) for tenant, made in self._requests.items()}

    def traffic(self) -> dict[str, Traffic]:
        """The totals so far, by kind of request."""
        with self._lock:
            return dict(self._traffic)

    def get(self, key: str) -> bytes:
        with _Counted(self, "get", key) as counted:
            body = self._inner.get(key)
            counted.read = len(body)
            return body

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with _Counted(self, "get", key) as counted:
            body = self._inner.get_range(key, start, length)
            counted.read = len(body)
            return body

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        with _Counted(self, "get", key) as counted:
            body, size = self._inner.get_tail(key, length)
            counted.read = len(body)
            return body, size

    def head(self, key: str) -> ObjectInfo:
        with _Counted(self, "head", key):
            return self._inner.head(key)

    def put(self, key: str, body: Body) -> None:
        with _Counted(self, "put", key, len(body)):
            self._inner.put(key, body)

    def put_new(self, key: str, body: bytes) -> None:
        with _Counted(self, "put_new", key, len(body)):
            self._inner.put_new(key, body)

    def put_if(self, key: str, body: bytes, version: str) -> None:
        with _Counted(self, "put_if", key, len(body)):
            self._inner.put_if(key, body, version)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        infos = self._inner.list_after(prefix, after, delimiter)
        for entry in itertools.count():
            # Each request counts separately, because the caller makes other calls in between.
            with _Counted(self, "list", prefix) as counted:
                counted.requests = int(entry == 0)
                info = next(infos, None)
                if info is not None and entry % LIST_PAGE == 0:
                    counted.requests = 1
            if info is None:
                return
            yield info

    def delete(self, key: str) -> None:
        with _Counted(self, "delete", key):
            self._inner.delete(key)

    def add_all(self, traffic: Mapping[str, Traffic], tenant: TenantKey) -> None:
        """Add the requests for a tenant that another process made to the same store on behalf of this process."""
        for kind, done in traffic.items():
            self.add(kind, tenant, done)

    def add(self, kind: str, tenant: TenantKey | None, done: Traffic, probes: int = 0) -> None:
        """Add requests to the totals of their kind and of the tenant. `probes` of the requests belong to no tenant."""
        with self._lock:
            if tenant is not None:
                self._requests.setdefault(tenant, Counter())[kind] += done.requests - probes
            old = self._traffic[kind]
            self._traffic[kind] = Traffic(
                old.requests + done.requests,
                old.failures + done.failures,
                old.read_bytes + done.read_bytes,
                old.written_bytes + done.written_bytes,
            )


class _Counted:
    """The counts of one call of the store, while it runs."""

    def __init__(self, store: MeasuredObjectStore, kind: str, key: str, written: int = 0) -> None:
        self._store, self._kind, self._key, self._written = store, kind, key, written
        self.requests, self.read = put_requests(written), 0

    def __enter__(self) -> _Counted:
        counting = self._store.counting
        self._before = (*counting.requests_made(), counting.probes_made()) if counting else (0, 0, 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failed = kind is not None and issubclass(kind, Exception)
        requests, failures, probes = self.requests, int(failed), 0
        if counting := self._store.counting:
            made, met = counting.requests_made()
            requests, failures = made - self._before[0], met - self._before[1]
            probes = counting.probes_made() - self._before[2]
        if requests or failures or self.read or self._written:
            done = Traffic(requests, failures, self.read, 0 if failed else self._written)
            self._store.add(self._kind, layout.tenant_of(self._key), done, probes)
