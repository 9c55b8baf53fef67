"""Reads and writes the objects below the root of a storage sink. Writes are conditional; if an object with the name
exists, its content decides whether an earlier attempt or another writer has put it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tistream.errors import CommitConflict, CommitStateUnknown, FatalError, NotFoundYet, RetryableError
from tistream.storage.object_store import ObjectStore
from tistream_changefeed.core.failure import failed, refused, retry
from tistream_changefeed.sinks.storage.paths import METADATA, Layout, index_key, schema_prefix, schema_version

_TRIES = 3
_DENIED = tuple(
    f"{code} (" for code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied", "403")
)
"""S3's codes of refused credentials, as errors of its store show them."""


class SinkRoot:
    """Reads and writes the objects of one sink. No call replaces an object that another writer has replaced since it
    was read. Every call may raise FeedFailed. `where` is the URL of the root, without secrets."""

    def __init__(self, objects: ObjectStore, where: str, layout: Layout) -> None:
        self._objects, self.where, self._layout = objects, where, layout
        self._read: tuple[bytes, str] | None = None  # the content and the version of `metadata`

    @property
    def known(self) -> bytes | None:
        """The content of `metadata` as this object has read or put it last; None if it did not exist."""
        return None if self._read is None else self._read[0]

    def metadata(self) -> bytes | None:
        """Read the content of `metadata`; None if it does not exist."""
        with self._asking(METADATA):
            self._read = self._versioned(METADATA)
        return self.known

    def put_metadata(self, content: bytes, beaten: Callable[[], None]) -> None:
        """Replace `metadata`, if it is as this object has read or put it last. If another writer has replaced
        it since, `beaten` is called, which may raise a more exact FeedFailed, and then FeedFailed is raised."""
        with self._asking(METADATA):
            if not self._replaced(METADATA, content, self._read):
                beaten()
                raise retry("sink", self._named(METADATA), "another writer has replaced it")
            self._read = self._versioned(METADATA)
        if self.known != content:
            beaten()
            raise retry("sink", self._named(METADATA), "another writer has replaced it")

    def put_file(self, key: str, content: bytes, beaten: Callable[[], None]) -> None:
        """Create a file. One that exists with the same bytes is from an earlier attempt. If it has other bytes,
        `beaten` is called, which raises FeedFailed if another writer has taken over; if it returns, this raises
        FeedFailed."""
        with self._asking(key):
            for _ in range(_TRIES):
                try:
                    self._objects.put_new(key, content)
                    return
                except CommitStateUnknown:  # the same bytes again show whether they are there
                    continue
                except CommitConflict:
                    if self._objects.get(key) == content:
                        return
                    beaten()
                    raise failed(
                        "sink",
                        self._named(key),
                        "the file has other bytes than this feed writes for the same rows: the feed was configured "
                        "otherwise when a worker that was killed had put it, or another program writes there; no index "
                        "file names it: delete it, then resume the changefeed",
                    ) from None
        raise retry("sink", self._named(key), f"no answer came to {_TRIES} puts")

    def last_number(self, directory: str, beaten: Callable[[], None]) -> int:
        """The number of the last data file that the index file of a directory names; 0 if there is no index file. If
        another writer has replaced `metadata`, it may have named files since: then `beaten` is called, and FeedFailed
        is raised."""
        key = index_key(directory)
        with self._asking(key):
            found = self._versioned(key)
            if self._versioned(METADATA) != self._read:  # after the index file, which is written after it
                beaten()
                raise retry("sink", self._named(METADATA), "another writer has replaced it")
        return 0 if found is None else self._number(key, found[0])

    def put_index(self, directory: str, number: int, beaten: Callable[[], None]) -> None:
        """Name the data file `number` as the last one of a directory, unless a later one is named already. If another
        writer has replaced the index file in between, `beaten` is called, which raises FeedFailed unless this writer is
        the newest one."""
        key, content = index_key(directory), self._layout.index_content(number)
        with self._asking(key):
            for _ in range(_TRIES):
                found = self._versioned(key)
                if found is not None and self._number(key, found[0]) >= number:
                    return
                if self._replaced(key, content, found):
                    return
                beaten()
        raise retry("sink", self._named(key), "another writer replaces it")

    def schema_versions(self, database: str, table: str) -> list[tuple[int, int]]:
        """The schema files of a table, as (version, checksum), in order."""
        prefix = schema_prefix(database, table)
        with self._asking(prefix):
            keys = [info.key for info in self._objects.list_after(prefix, delimiter="/")]
        return sorted(found for key in keys if (found := schema_version(key)) is not None)

    def names_below(self, prefix: str) -> list[str]:
        """The names of the directories in a directory. `prefix` ends with a slash, or is empty."""
        with self._asking(prefix):
            keys = [info.key for info in self._objects.list_after(prefix, delimiter="/")]
        return [key[len(prefix) : -1] for key in keys if key.endswith("/")]

    def named_number(self, directory: str) -> int | None:
        """The number of the last data file that the index file of a directory names; None if it has no index file."""
        content = self.content(index_key(directory))
        return None if content is None else self._number(index_key(directory), content)

    def content(self, key: str) -> bytes | None:
        """The content of an object; None if it does not exist."""
        with self._asking(key):
            try:
                return self._objects.get(key)
            except NotFoundYet:
                return None

    def _versioned(self, key: str) -> tuple[bytes, str] | None:
        """The content and the version of an object; None if it does not exist. If it is replaced in between, a put with
        this version is refused."""
        try:
            version = self._objects.head(key).version
            return self._objects.get(key), version
        except NotFoundYet:
            return None

    def _replaced(self, key: str, content: bytes, found: tuple[bytes, str] | None) -> bool:
        """Write `content` to an object, if it is still as it was `found` (None: it did not exist). Returns whether the
        object has this content now."""
        for _ in range(_TRIES):
            try:
                if found is None:
                    self._objects.put_new(key, content)
                else:
                    self._objects.put_if(key, content, found[1])
                return True
            except (CommitConflict, CommitStateUnknown) as error:
                there = self._versioned(key)
                if there is not None and there[0] == content:
                    return True
                if isinstance(error, CommitConflict) or there != found:
                    return False
        raise retry("sink", self._named(key), f"no answer came to {_TRIES} puts")

    def _number(self, key: str, content: bytes) -> int:
        number = self._layout.indexed(content)
        if number is None:
            shown = content[:60].decode(errors="replace")
            reason = f"it names {shown!r}, no data file of this format: give the feed a path of its own"
            raise failed("sink", self._named(key), reason)
        return number

    def _named(self, key: str) -> str:
        return f"{self.where}/{key}"

    @contextmanager
    def _asking(self, key: str) -> Iterator[None]:
        try:
            yield
        except RetryableError as error:
            denied = any(code in str(error) for code in _DENIED)
            if denied:
                raise refused(self._named(key), str(error)) from error
            raise retry("sink", self._named(key), str(error)) from error
        except FatalError as error:
            raise failed("sink", self._named(key), str(error)) from error
