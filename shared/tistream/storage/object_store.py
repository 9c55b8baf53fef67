"""The interface to an object store: a flat key space with conditional writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Body = bytes | memoryview  # a memoryview lets a large object be written without a copy
RangeSigner = Callable[[str, int, int, int], str]
"""(key, start, length, seconds) -> a URL with which its holder can read the bytes `[start, start+length)` of one object
for `seconds`, without credentials. A GET must have the header that `range_header` returns, because it is signed: the
URL is good for no other bytes."""


def range_header(start: int, length: int) -> str:
    """The value of the HTTP header `Range` for the bytes `[start, start+length)`."""
    return f"bytes={start}-{start + length - 1}"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object in the answer of LIST or HEAD.

    `version` changes whenever the bytes do (ETag, mtime+size). `modified_ms` is the time of the last write by the
    store's clock, in ms since the Unix epoch (HEAD may give whole seconds only); 0 if the store has no clock.
    """

    key: str
    size: int
    version: str
    modified_ms: int = 0


class ObjectStore(Protocol):
    """An object store: a flat key space. A read that begins after a write has returned sees that write, as in S3 since
    2020.

    Every method raises Unavailable if the store does not answer or refuses the request. `put` and `delete` may then
    have changed the object; the other methods have changed nothing. A key that breaks the rules of keys gives
    InvalidRequest.
    """

    def get(self, key: str) -> bytes:
        """Read the whole object. Raises NotFoundYet; CorruptObject if it fails a checksum that the store keeps."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read the bytes `[start, start+length)`; the result is shorter at the object's end. Raises NotFoundYet."""

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """Read the last `length` bytes (all, if the object is shorter). Returns them, and the object's size. Raises
        NotFoundYet."""

    def head(self, key: str) -> ObjectInfo:
        """Read the object's size, version and time. Raises NotFoundYet."""

    def put(self, key: str, body: Body) -> None:
        """Create or replace an object. There is no protection against other writers of the key, so use it only for keys
        that no other process writes."""

    def put_new(self, key: str, body: bytes) -> None:
        """Create `key`; never overwrite it. Makes one attempt.

        Raises:
            CommitConflict: the key exists.
            CommitStateUnknown: no answer came; put the same bytes again, then read back.
        """

    def put_if(self, key: str, body: bytes, version: str) -> None:
        """Replace `key` if its version is still `version`. Makes one attempt.

        Raises:
            CommitConflict: the object has another version, or does not exist.
            CommitStateUnknown: no answer came; put the same bytes again, then read back.
        """

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        """List the objects below `prefix` whose key is > `after`, in key order.

        With delimiter "/", keys that have a further "/" are not listed one by one: each common prefix is one entry with
        size -1, version "" and a key ending in "/".
        """

    def delete(self, key: str) -> None:
        """Delete `key`. It is no error if the key does not exist. Raises Unavailable; the object may be gone then."""


@runtime_checkable
class SignsRanges(Protocol):
    """A store that can sign URLs for holders without credentials."""

    def range_signer(self, endpoint: str | None) -> RangeSigner:
        """Make a function that signs URLs. `endpoint`: the URL of the store as the holders reach it; None: the one that
        this process uses. The function raises Unavailable if there are no credentials."""
