"""Groups changes of RawKV into batches that a cluster accepts.

Pure. All changes of a key are given to the same worker, and keep their order. A batch has either puts or deletes, and
each key once, so the order in which TiKV applies them does not matter.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

KEYS_MAX = 4_096
BYTES_MAX = 1 << 20  # of keys and values; TiKV refuses a Raft entry of 8 MiB


@dataclass(frozen=True, slots=True)
class RawWrite:
    """A put or delete of one RawKV key. `key` includes the prefix of its keyspace. `value` is None for a delete.
    `expire_ts` is in seconds of Unix time; 0 means that the value never expires."""

    key: bytes
    value: bytes | None
    expire_ts: int = 0

    @property
    def size(self) -> int:
        """The size of key and value, in bytes."""
        return len(self.key) + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that one request sends: either puts (`values` and `ttls` have an item for each key), or deletes (both are
    empty). `ttls` are in seconds; 0 means for ever."""

    keys: tuple[bytes, ...]
    values: tuple[bytes, ...] = ()
    ttls: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def puts(self) -> bool:
        """Whether the batch has puts; otherwise it has deletes."""
        return bool(self.values)

    def part(self, at: Sequence[int]) -> Batch:
        """A batch of the changes with these indexes only."""
        keys = tuple(self.keys[one] for one in at)
        if not self.puts:
            return Batch(keys)
        return Batch(keys, tuple(self.values[one] for one in at), tuple(self.ttls[one] for one in at))


def shares(writes: Iterable[RawWrite], workers: int) -> list[list[RawWrite]]:
    """Distribute writes over workers by their keys. Returns one list for each worker; each keeps the order."""
    out: list[list[RawWrite]] = [[] for _ in range(workers)]
    for write in writes:
        out[zlib.crc32(write.key) % workers].append(write)
    return out


def batches(writes: Iterable[RawWrite], now_s: int) -> Iterator[Batch]:
    """Group the writes of one worker into batches, in order. A put that has expired by `now_s` becomes a delete,
    because the key's earlier value must be removed."""
    held: dict[bytes, tuple[bytes, int]] = {}
    puts, size = False, 0
    for write in writes:
        ttl = write.expire_ts - now_s if write.expire_ts else 0
        value = write.value if ttl > 0 or not write.expire_ts else None
        other = puts != (value is not None)
        if held and (other or write.key in held or len(held) >= KEYS_MAX or size + write.size > BYTES_MAX):
            yield _batch(held, puts=puts)
            held, size = {}, 0
        puts = value is not None
        held[write.key] = value or b"", ttl
        size += write.size
    if held:
        yield _batch(held, puts=puts)


def _batch(held: dict[bytes, tuple[bytes, int]], *, puts: bool) -> Batch:
    keys = tuple(held)
    if not puts:
        return Batch(keys)
    return Batch(keys, tuple(value for value, _ in held.values()), tuple(ttl for _, ttl in held.values()))
