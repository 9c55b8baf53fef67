"""An object store in memory, with S3's semantics: for tests, simulations and one-process trials."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import CommitConflict, NotFoundYet
from tistream.storage.backends.keys import check_key
from tistream.storage.object_store import Body, ObjectInfo


class MemoryObjectStore:
    """Implements ObjectStore; thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        """If `clock` is None, the `modified_ms` of every object is 0."""
        self._clock = clock
        self._lock = new_lock()
        self._objects: dict[str, tuple[bytes, int, int]] = {}  # bytes, sequence number of the write, time of the write
        self._keys: list[str] = []  # sorted; code points sort as UTF-8 does
        self._writes = 0

    def get(self, key: str) -> bytes:
        return self._read(key)[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._read(key)[0][start : start + length]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        body = self._read(key)[0]
        return body[max(0, len(body) - length) :], len(body)

    def head(self, key: str) -> ObjectInfo:
        body, version, modified_ms = self._read(key)
        return ObjectInfo(key, len(body), str(version), modified_ms)

    def put(self, key: str, body: Body) -> None:
        with self._lock:
            self._write(check_key(key), bytes(body))

    def put_new(self, key: str, body: bytes) -> None:
        with self._lock:
            if check_key(key) in self._objects:
                raise CommitConflict(key)
            self._write(key, body)

    def put_if(self, key: str, body: bytes, version: str) -> None:
        with self._lock:
            held = self._objects.get(check_key(key))
            if held is None or str(held[1]) != version:
                raise CommitConflict(key)
            self._write(key, body)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        with self._lock:
            keys = self._keys[max(bisect_left(self._keys, prefix), bisect_right(self._keys, after)) :]
            found = [(key, *self._objects[key]) for key in keys if key.startswith(prefix)]
        last = after
        for key, body, version, modified_ms in found:
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                yield ObjectInfo(key, len(body), str(version), modified_ms)
            elif (common := key[: cut + 1]) > last:
                last = common
                yield ObjectInfo(common, -1, "")

    def delete(self, key: str) -> None:
        with self._lock:
            if self._objects.pop(check_key(key), None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def _read(self, key: str) -> tuple[bytes, int, int]:
        with self._lock:
            try:
                return self._objects[check_key(key)]
            except KeyError:
                raise NotFoundYet(key) from None

    def _write(self, key: str, body: bytes) -> None:
        if key not in self._objects:
            self._keys.insert(bisect_left(self._keys, key), key)
        self._writes += 1
        self._objects[key] = (bytes(body), self._writes, 0 if self._clock is None else self._clock.now_ms())
