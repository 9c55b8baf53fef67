"""`tistream pull -o DIR`: writes pages into a directory, which later pulls continue.

    DIR/shop.orders/000001-000002.parquet    --format parquet: rows: page 1 of this directory, file 2 of that page
    DIR/ddl/000001-000001.parquet            DDL events
    DIR/000001.ndjson                        --format ndjson: the events of page 1
    DIR/end.json                             the request, the number of complete pages, and the cursor after them;
                                             before the first page: the cursor or start_ts at which it begins

A page is complete once end.json counts it. The files of an incomplete page are removed by the next pull. A pull holds
a lock on DIR, so there is one at a time.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import tarfile
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

from tistream_client.cli.errors import AGAIN, CliError, NoAnswer
from tistream_client.cli.pull.files import directory_of, put, put_whole, sync
from tistream_client.cli.pull.format import PullFormat, PullRequest

_BLOCK = 512  # block size of a tar archive, which ends with two empty blocks
_END = "end.json"
_DDL = "ddl"
_FILE = re.compile(r"([0-9]{6,})(?:-[0-9]{6,}\.parquet|\.ndjson)")
_DRAFT = re.compile(r"\..*\.part")
_ROW, _DDL_LINE = b'{"type":"row"', b'{"type":"ddl"'
_REQUEST_FIELDS = (
    "cluster",
    "tenant",
    "database",
    "table",
    "events",
    "columns",
    "where",
    "tables",
    "operations",
    "since",
)


class Directory(ABC):
    """A directory that receives the pages of one pull. Raises CliError if it belongs to another pull, has other files,
    or if another process pulls into it; OSError if it cannot be created. `close` ends the lock."""

    form: PullFormat
    continues = True

    def __init__(self, directory: Path, request: PullRequest) -> None:
        self._directory = directory
        self._request = {name: getattr(request, name) for name in _REQUEST_FIELDS}
        self._request["events"] = str(request.events or "all")
        self._request["since"] = request.since or request.start_ts
        self._request["cursor"] = request.cursor
        self._request["format"] = str(self.form)
        self._lock: int | None = _locked(directory)
        try:
            stored = self._read()
        except CliError:
            self.close()
            raise
        self.cursor: str | None = stored.get("cursor")
        self._start_ts: str | None = stored.get("start_ts")
        self._page: int = stored.get("page", 0)

    def continued(self, request: PullRequest) -> PullRequest:
        """The request, at the cursor or the start_ts of end.json if that has one."""
        if self.cursor is not None:
            return replace(request, cursor=self.cursor, start_ts=None)
        return request if self._start_ts is None else replace(request, start_ts=self._start_ts)

    def resumed(self, request: PullRequest) -> PullRequest:
        """The request, continued after the pages in the directory. Its times must be TSO. Where it begins is stored
        before the first page is requested, so that a later run begins there too."""
        self._begin(request)
        return self.continued(request)

    def write(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Write a page's files and then end.json, which makes the page complete. Returns (number of events, the
        metadata at the page's end). Raises NoAnswer if the page is truncated."""
        files, end = self._parsed(body)
        events = self._store(files, f"{self._page + 1:06d}")
        self._page += 1
        self._write(end)
        return events, end

    @abstractmethod
    def _parsed(self, body: bytes) -> tuple[list[bytes], dict[str, Any]]:
        """The parts of a page, and its end. Raises NoAnswer if the page is truncated."""

    @abstractmethod
    def _store(self, files: list[bytes], page: str) -> int:
        """Write the parts of a page as files whose names begin with `page`, the page's number. Returns the number of
        their events."""

    def close(self) -> None:
        """End the lock. Each page is complete by itself."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _read(self) -> dict[str, Any]:
        try:
            stored = json.loads((self._directory / _END).read_bytes())
        except FileNotFoundError:
            if any(not _DRAFT.fullmatch(path.name) for path in self._directory.iterdir()):
                raise CliError(f"{self._directory} has files but no {_END} of a pull: use an empty directory") from None
            return {}
        except (OSError, ValueError) as error:
            raise CliError(f"{self._directory / _END} cannot be read: {error}") from error
        where = f"{self._directory / _END} has the cursor of an earlier pull"
        if not isinstance(stored, dict):
            raise CliError(f"{self._directory / _END} was not written by a pull: use an empty directory")
        try:
            self._compare(stored, where)
        except CliError:
            if stored.get("page") != 0:
                raise
            (self._directory / _END).unlink()  # no page of the earlier request is complete: this one replaces it
            return {}
        return stored

    def _compare(self, stored: dict[str, Any], where: str) -> None:
        before = stored.get("asked", self._request)  # earlier versions did not store it
        begins = {"since": before.get("since"), "cursor": before.get("cursor")}
        # Of an earlier version, which did not store at which cursor it was asked to begin.
        if "asked" not in stored or ("cursor" not in before and stored.get("page") == 0):
            begins["cursor"] = stored.get("cursor")
        if any(self._request[name] not in (None, begin) for name, begin in begins.items()):
            raise CliError(f"{where}, from which this pull continues: omit --since and --cursor, repeat --since "
                           "or --cursor as it was, or use an empty directory")  # fmt: skip
        asked = {name: before.get(name) for name in _REQUEST_FIELDS}
        asked["format"] = before.get("format", str(PullFormat.PARQUET))
        if {**asked, **begins} != {**self._request, **begins}:
            raise CliError(f"{where} of {_words(before)}, not {_words(self._request)}: use an empty "
                           "directory")  # fmt: skip
        self._request |= begins

    def _begin(self, request: PullRequest) -> None:
        """Create end.json, and remove the files of an incomplete page of an earlier pull."""
        if not (self._directory / _END).exists():
            self._write({"cursor": request.cursor, "start_ts": request.start_ts})
        for path in [*self._directory.glob("*/*.parquet"), *self._directory.glob("*.ndjson")]:
            name = _FILE.fullmatch(path.name)
            if name is not None and int(name[1]) > self._page:
                path.unlink()

    def _write(self, stored: dict[str, Any]) -> None:
        body = json.dumps({**stored, "page": self._page, "asked": self._request}, ensure_ascii=False)
        put_whole(self._directory / _END, f"{body}\n".encode())


class ToFiles(Directory):
    """Writes a page as Parquet files: those with rows into a directory for each table, those with DDL events into one
    directory."""

    form = PullFormat.PARQUET

    def _parsed(self, body: bytes) -> tuple[list[bytes], dict[str, Any]]:
        try:
            with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                files = {one.name: file.read() for one in archive if (file := archive.extractfile(one)) is not None}
        except tarfile.TarError as error:
            raise _cut() from error
        end = next((name for name in files if name.endswith("-end.json")), None)
        if end is None or len(body) % _BLOCK or not body.endswith(bytes(2 * _BLOCK)):
            raise _cut()
        stored: dict[str, Any] = json.loads(files.pop(end))
        return list(files.values()), stored

    def _store(self, files: list[bytes], page: str) -> int:
        import pyarrow.parquet as pq  # noqa: PLC0415 - lines need no pyarrow

        events, places = 0, set[Path]()
        for number, data in enumerate(files, 1):
            footer = pq.ParquetFile(io.BytesIO(data))
            events += footer.metadata.num_rows
            place = self._directory / _place(footer.schema_arrow.metadata)
            place.mkdir(exist_ok=True)
            put(place / f"{page}-{number:06d}.parquet", data)
            places.add(place)
        for place in (*places, self._directory):
            sync(place)
        return events


class ToLines(Directory):
    """Writes a page as one file of NDJSON, unless the page has no events."""

    form = PullFormat.NDJSON

    def _parsed(self, body: bytes) -> tuple[list[bytes], dict[str, Any]]:
        lines = body.splitlines(keepends=True)
        if not lines or not body.endswith(b"\n") or lines[-1].startswith((_ROW, _DDL_LINE)):
            raise _cut()
        return lines[:-1], json.loads(lines[-1])

    def _store(self, files: list[bytes], page: str) -> int:
        if files:
            put(self._directory / f"{page}.ndjson", b"".join(files))
            sync(self._directory)
        return len(files)


def _locked(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        text = f"another pull writes into {directory}: wait until it has ended, or use another directory"
        raise CliError(text, AGAIN) from None
    return opened


def _place(metadata: dict[bytes, bytes]) -> str:
    if metadata[b"tistream.type"] != b"row":
        return _DDL
    return directory_of(metadata[b"tistream.database"].decode(), metadata[b"tistream.table"].decode())


def _words(request: dict[str, str | None]) -> str:
    return " ".join(f"{name}={value}" for name, value in request.items() if value is not None and name != "cursor")


def _cut() -> NoAnswer:
    return NoAnswer("the answer is truncated")
