"""A plain directory as an object store: `ROOT/<key>`, with the same keys as in S3.

Objects become visible as a whole: they are written to a temporary file on the same file system, synced, and then linked
(`put_new`: link(2) fails if the name exists) or renamed (`put`) into place; then the directory is synced. Other
programs may copy files in by other means; such a file may be read while it is half written; a reader notices that
because `ObjectInfo.version` changes.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tistream.errors import CommitConflict, CommitStateUnknown, InvalidRequest, NotFoundYet, Unavailable
from tistream.storage.backends.directory_walk import walk
from tistream.storage.backends.keys import check_key
from tistream.storage.object_store import Body, ObjectInfo

INSIDE_TMP = ".tmp"  # folder for temporary files if ROOT is itself a mount point; no key may begin with it


class DirectoryObjectStore:
    """Implements ObjectStore in a directory, for any number of processes on one machine.

    A key must be replaced either by `put` or by `put_if`, never by both, because only `put_if` takes the lock that
    protects a replacement.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = os.path.realpath(root)
        self._numbers = itertools.count()  # numbers in the names of temporary files
        try:
            os.makedirs(self._root, exist_ok=True)
            sibling = f"{self._root}.tmp"
            parent_device = os.stat(os.path.dirname(self._root)).st_dev
            same_device = parent_device == os.stat(self._root).st_dev
        except OSError as error:
            raise Unavailable(f"{self._root}: {error}") from error
        self._tmp = sibling if same_device else os.path.join(self._root, INSIDE_TMP)

    def get(self, key: str) -> bytes:
        with self._open(key) as (fd, size):
            return _read(fd, 0, size)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._open(key) as (fd, size):
            return _read(fd, start, min(length, max(0, size - start)))

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        with self._open(key) as (fd, size):
            start = max(0, size - length)
            return _read(fd, start, size - start), size

    def head(self, key: str) -> ObjectInfo:
        with self._open(key) as (fd, _):
            return _info(key, os.fstat(fd))

    def put(self, key: str, body: Body) -> None:
        path = self._path(key)
        with self._written(key, body) as temporary:
            self._place(key, path, lambda: os.replace(temporary, path))

    def put_new(self, key: str, body: bytes) -> None:
        path = self._path(key)
        if os.path.lexists(path):
            raise CommitConflict(key)
        with self._written(key, body) as temporary:
            self._place(key, path, lambda: os.link(temporary, path), conditional=True)

    def put_if(self, key: str, body: bytes, version: str) -> None:
        path = self._path(key)
        with self._written(key, body) as temporary, self._locked():
            try:
                current = self.head(key).version
            except NotFoundYet:
                current = ""
            if current != version:
                raise CommitConflict(key)
            self._place(key, path, lambda: os.replace(temporary, path), conditional=True)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        if delimiter not in ("", "/"):
            raise InvalidRequest(f"delimiter {delimiter!r}")
        try:
            for key, found in walk(self._root, prefix, after, by_directory=bool(delimiter), skip=INSIDE_TMP):
                yield ObjectInfo(key, -1, "") if found is None else _info(key, found)
        except OSError as error:
            raise Unavailable(f"cannot list {prefix!r}: {error}") from error

    def delete(self, key: str) -> None:
        try:
            os.unlink(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise Unavailable(f"cannot delete {key}: {error}") from error

    def _path(self, key: str) -> str:
        check_key(key)
        if key.split("/", 1)[0] == INSIDE_TMP:
            raise InvalidRequest(f"object key {key!r}: begins with a reserved name")
        path = os.path.join(self._root, key)
        resolved = os.path.realpath(path)
        if os.path.commonpath((resolved, self._root)) != self._root:
            raise InvalidRequest(f"object key {key!r}: a symbolic link leads out of the store")
        return path

    @contextmanager
    def _open(self, key: str) -> Iterator[tuple[int, int]]:
        """Open the regular file of an object for a `with` block, as (descriptor, size). Raises NotFoundYet if it does
        not exist or is not a regular file."""
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # do not wait for a FIFO's writer
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotFoundYet(key) from None
        except OSError as error:
            raise Unavailable(f"cannot read {key}: {error}") from error
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise NotFoundYet(key)
            yield fd, found.st_size
        except OSError as error:
            raise Unavailable(f"cannot read {key}: {error}") from error
        finally:
            os.close(fd)

    @contextmanager
    def _written(self, key: str, body: Body) -> Iterator[str]:
        """Write `body` to a synced temporary file for a `with` block, and remove the file afterwards."""
        temporary = None
        try:
            try:
                os.makedirs(self._tmp, exist_ok=True)
                fd, temporary = self._temporary()
                try:
                    _write(fd, body)
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                raise Unavailable(f"cannot write {key}: {error}") from error
            yield temporary
        finally:
            if temporary is not None:
                # A file that is left over is garbage, and a renamed one does not exist any more.
                with suppress(OSError):
                    os.unlink(temporary)

    def _temporary(self) -> tuple[int, str]:
        """Create a temporary file. Returns (descriptor, path). Its permissions follow the process's umask. A file of
        mkstemp would not be readable for other users of the store, and the umask cannot be read without setting it for
        all threads."""
        while True:
            path = os.path.join(self._tmp, f"put-{os.getpid()}-{next(self._numbers)}")
            # The file of another object of this process, or of a process with the same number.
            with suppress(FileExistsError):
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), path

    def _place(self, key: str, path: str, move: Callable[[], None], conditional: bool = False) -> None:
        """Make a temporary file visible under the object's name, durably. `move` links or renames the file. Raises
        CommitConflict, CommitStateUnknown (only if `conditional`), Unavailable, InvalidRequest."""
        parent = os.path.dirname(path)
        try:
            self._make_directories(parent)
            move()
        except FileExistsError:
            raise CommitConflict(key) from None
        except (NotADirectoryError, IsADirectoryError) as error:
            raise InvalidRequest(f"object key {key!r}: a part of it is an object, or it is a directory") from error
        except OSError as error:
            if conditional and error.errno == errno.EIO:
                raise CommitStateUnknown(key, str(error)) from error
            raise Unavailable(f"cannot write {key}: {error}") from error
        try:
            _sync_directory(parent)
        except OSError as error:  # the name exists already, but may not survive a power failure
            if conditional:
                raise CommitStateUnknown(key, str(error)) from error
            raise Unavailable(f"cannot sync {key}: {error}") from error

    def _make_directories(self, path: str) -> None:
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(directory)
            _sync_directory(os.path.dirname(directory))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            fd = os.open(os.path.join(self._tmp, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unavailable(f"cannot lock {self._tmp}: {error}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)  # releases the lock


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    version = f"{found.st_mtime_ns}-{found.st_size}-{found.st_ino}"
    return ObjectInfo(key, found.st_size, version, found.st_mtime_ns // 1_000_000)


def _read(fd: int, start: int, length: int) -> bytes:
    """Read `length` bytes at offset `start`, or fewer at the end of the file. Calls pread repeatedly, because one call
    may return less than requested (2 GiB at most on Linux)."""
    first = os.pread(fd, length, start)
    if len(first) == length or not first:
        return first
    pieces, got = [first], len(first)
    while got < length and (piece := os.pread(fd, length - got, start + got)):
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def _write(fd: int, body: Body) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
