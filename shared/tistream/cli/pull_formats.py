"""`tistream pull --format arrow|parquet`: whole pages, one after the other, until caught up."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tistream.cli.client import ApiClient, changes_path
from tistream.cli.errors import CliError
from tistream.cli.pull import Progress, PullRequest, is_over, page_parameters
from tistream.cli.pull_format import PullFormat
from tistream.errors import Gone, TiStreamError

_EVENTS = (b"row", b"ddl")
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an IPC stream
_BLOCK = 512  # of a tar archive, which ends with two empty ones


class Pages(Protocol):
    """Where pages go."""

    form: PullFormat

    def take(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Keep a page. Its events, and what its end says. Raises CliError if it was cut."""


@dataclass(slots=True)
class ToStream:
    """Arrow IPC streams, as they come: `pyarrow.ipc.open_stream` reads one after the other."""

    out: IO[bytes]
    form: PullFormat = PullFormat.ARROW

    def take(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Read what it says, and write it."""
        source, events, end = io.BytesIO(body), 0, {}
        try:
            while source.tell() < len(body):
                with pa.ipc.open_stream(source) as stream:
                    kind = stream.schema.metadata[b"tistream.type"]
                    for batch in stream:
                        if kind in _EVENTS:
                            events += batch.num_rows
                        else:
                            end = {"type": kind.decode(), **batch.to_pylist()[0]}
        except (pa.ArrowException, OSError) as error:
            raise _cut() from error
        if not end or not body.endswith(_STREAM_END):
            raise _cut()
        self.out.write(body)
        self.out.flush()
        return events, end


@dataclass(slots=True)
class ToFiles:
    """Parquet files in a directory, and `end.json` with the newest cursor. Existing files are an error."""

    directory: Path
    form: PullFormat = PullFormat.PARQUET
    _pages: int = field(default=0, init=False)

    def take(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Write the page's files under names that begin with the page's number; its end comes last."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._pages += 1
        events = 0
        try:
            with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                files = {one.name: file.read() for one in archive if (file := archive.extractfile(one)) is not None}
        except tarfile.TarError as error:
            raise _cut() from error
        end = next((name for name in files if name.endswith("-end.json")), None)
        if end is None or len(body) % _BLOCK or not body.endswith(bytes(2 * _BLOCK)):
            raise _cut()
        told = files.pop(end)
        for name, data in files.items():
            events += pq.read_metadata(io.BytesIO(data)).num_rows
            with (self.directory / f"{self._pages:06d}-{Path(name).name}").open("xb") as file:
                file.write(data)
        (self.directory / "end.json").write_bytes(told)
        return events, orjson.loads(told)


def pull_pages(client: ApiClient, request: PullRequest, pages: Pages) -> None:
    """Pull page after page into `pages`. Raises CliError."""
    path = changes_path(request.cluster, request.tenant, request.database, request.table)
    progress = Progress(cursor=request.cursor)
    start_ts = request.start_ts
    while True:
        asked = {**page_parameters(request, progress, start_ts or "0"), "format": str(pages.form)}
        try:
            body = b"".join(client.chunks(path, asked))
        except Gone as error:
            earliest_ts = error.extra.get("earliest_ts")
            if start_ts is not None or progress.cursor is not None or earliest_ts is None:
                raise CliError(str(error)) from error
            start_ts = str(earliest_ts)  # nobody said where to begin: at the beginning
            continue
        except TiStreamError as error:
            raise CliError(str(error)) from error
        events, end = pages.take(body)
        progress.rows += events
        progress.last_type, progress.cursor = end["type"], end["cursor"]
        if end["type"] == "resolved":
            progress.resolved_ts = str(end["resolved_ts"])
        if is_over(request, progress, got_events=events > 0):
            return


def _cut() -> CliError:
    return CliError("the answer was cut before its end; pull again from the last cursor")
