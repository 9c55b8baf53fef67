"""Reads a tenant's databases, tables and rows as of one ts from the API."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from tistream.restore.table_names import TableNames
from tistream.targets.restored_table import Chunk, Name
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import NoAnswer

_NOW = "now"


@dataclass(frozen=True, slots=True)
class Past:
    """Reads from the API what one tenant had at one ts."""

    client: ApiClient
    cluster: str
    tenant: str
    ts: int

    @classmethod
    def at(cls, client: ApiClient, cluster: str, tenant: str, ts: str) -> Past:
        """Make a reader of a tenant at `ts` (a TSO, or `now`: the newest ts that can be read). Raises CliError."""
        path = tenant_path(cluster, tenant, "databases")
        found = client.call("GET", path if ts == _NOW else f"{path}?ts={ts}")
        return cls(client, cluster, tenant, int(found["ts"]))

    def tables(self, names: TableNames) -> Iterator[Name]:
        """Find the base tables that have these names. Raises CliError, also if a given name has no table."""
        if names.database is not None and names.table is not None:
            found = self.definition((names.database, names.table))
            yield found["database"], found["table"]
            return
        databases: list[str] = self._get("databases")["databases"] if names.database is None else [names.database]
        for database in databases:
            listed = self._get("databases", database, "tables")
            yield from ((listed["database"], one["name"]) for one in listed["tables"])

    def definition(self, name: Name) -> dict[str, Any]:
        """Request the definition of a table: the answer of TableDefinition. Raises CliError."""
        return self._get("databases", name[0], "tables", name[1], "definition")

    def rows(self, name: Name, cursor: str | None, limit: int) -> Chunk:
        """Request the next rows of a table, at most `limit`, after `cursor`; None: from the first row on. The batches
        of the result, at least one, have the visible columns. Iterating over the batches raises TiStreamError,
        NoAnswer."""
        params = {"cursor": cursor} if cursor is not None else {"ts": str(self.ts)}
        path = tenant_path(self.cluster, self.tenant, "databases", name[0], "tables", name[1], "rows")
        page = _Page(self.client.chunks(path, {**params, "limit": str(limit), "format": "arrow"}))
        return Chunk(page.batches(), page.end)

    def _get(self, *names: str) -> dict[str, Any]:
        path = f"{tenant_path(self.cluster, self.tenant, *names)}?{urlencode({'ts': self.ts})}"
        found: dict[str, Any] = self.client.call("GET", path)
        return found


class _Page:
    """An answer of ListRows in Arrow format, which is read while it arrives."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rows = 0
        self._end: dict[str, str] | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of the page. Raises NoAnswer if the answer is truncated."""
        try:
            with pa.ipc.open_stream(io.BufferedReader(_Stream(self._chunks))) as stream:
                for found in stream.iter_batches_with_custom_metadata():
                    metadata = {} if found.custom_metadata is None else found.custom_metadata.to_dict()
                    self._end = {name.decode(): value.decode() for name, value in metadata.items()} or None
                    if found.batch.num_rows or (self._end is not None and not self._rows):
                        self._rows += found.batch.num_rows
                        yield _visible(found.batch)
        except (pa.ArrowInvalid, OSError) as error:
            raise NoAnswer(f"the answer ended early: {error}") from error
        if self._end is None or self._end.get("tistream.type") != "end":
            raise NoAnswer("the answer ended early, so the API server may have stopped: run the command again")

    def end(self) -> tuple[int, str | None]:
        """The number of rows, and the cursor of the next page (None: it was the last). Call it after all batches were
        read."""
        assert self._end is not None  # the caller has read all batches
        return self._rows, self._end.get("tistream.cursor")


def _visible(batch: pa.RecordBatch) -> pa.RecordBatch:
    row = batch.column(batch.schema.get_field_index("row"))
    return pa.RecordBatch.from_arrays(row.flatten(), schema=pa.schema(list(row.type)))


class _Stream(io.RawIOBase):
    """A file object that reads the chunks of an answer."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
