"""Reads changes with `direct=true`: the API server says where row groups are, and this process fetches and decodes
them.

The server answers for one range of commit_ts after the other. What it may not give whole, such as a row group that has
rows of other tables, is pulled. If a URL is no longer good, the server is asked again from the position that was
reached: no row is missing, and none comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from tistream_client.core.arrow import event_batch
from tistream_client.core.asking import json_of
from tistream_client.core.errors import NoAnswer, WrongArgument
from tistream_client.core.pull import PullQuery
from tistream_client.core.steps import Fetch
from tistream_client.spark.bucket import RangeEnded, bucket_of
from tistream_client.spark.server import Server

_REPEATS = 5  # answers in sequence of whose rows none could be fetched


def check_decoder() -> None:
    """Raise WrongArgument unless this process can decode rows of TiDB: the platform's package does."""
    if find_spec("tistream") is None:
        raise WrongArgument(
            "direct",
            "needs the platform's package `tistream`, which decodes rows, in place of tistream-client on the driver "
            "and on every executor",
            '.option("direct", "false")',
        )


def pages(server: Server, query: PullQuery) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yield the row events with `query.since < commit_ts <= query.until`, of one table, as pages of record batches. The
    query has both bounds. Raises WrongArgument, ApiError, NoAnswer."""
    check_decoder()
    from tistream.read.signed.signed_read import TableRead  # noqa: PLC0415 - it is not in the client's distribution

    scope, until = query.scope, query.until
    assert query.since is not None
    assert until is not None
    read = TableRead.of(scope.cluster, scope.tenant, scope.database or "", scope.table or "", query.since)
    progress, ended = read.progress, 0
    with bucket_of(server.options) as bucket:
        while progress.ts < until:
            answer = _signed(server, progress.ts, until)
            end = int(answer["end_ts"])
            if not answer["direct"]:
                yield from server.pulled(replace(query, since=None, cursor=progress.cursor, until=end))
                read = read.moved(end)
                progress = read.progress
                continue
            try:
                for found, later, reached in read.batches(answer, bucket.fetch):
                    if found:
                        yield [event_batch(batch, None) for batch in found]
                    ended = 0 if reached.cursor != progress.cursor else ended
                    read, progress = later, reached
                    if reached.blocked:  # the pull says which row cannot be decoded
                        yield from server.pulled(replace(query, since=None, cursor=reached.cursor))
                        return
            except RangeEnded as error:
                ended += 1
                if ended > _REPEATS:
                    raise NoAnswer(
                        f"the object store refuses {ended} URLs in sequence that were just signed ({error}). Compare "
                        "its clock and the setting TISTREAM_API__SIGNED__ENDPOINT, or read without direct"
                    ) from error


def _signed(server: Server, low: int, high: int) -> dict[str, Any]:
    """The answer of SignedChanges."""
    fetch = Fetch(server.options.scope.path("changes", "signed"), {"start_ts": str(low), "end_ts": str(high)})
    return server.transport.ask(server.patience.ask(fetch, json_of))
