"""Reads changes with `direct=true`: the API server says where row groups are, and this process fetches and decodes
them.

The server answers for one range of commit_ts after the other. What it may not give whole, such as a row group that has
rows of other tables, is pulled. If a URL is refused, the server is asked again from the position that was reached: no
row is missing, and none comes twice. If that is refused too, the rest is pulled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit
from warnings import warn

import pyarrow as pa

from tistream_client.core.arrow import event_batch
from tistream_client.core.asking import json_of
from tistream_client.core.errors import WrongArgument
from tistream_client.core.pull import PullQuery
from tistream_client.core.steps import Fetch
from tistream_client.spark.bucket import RangeEnded, bucket_of
from tistream_client.spark.server import Server

_REFUSALS = 2  # in sequence, without a row in between
_PAUSE_S = 1.0  # in which the server learns of a compaction


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
    progress, refused = read.progress, 0
    with bucket_of(server) as bucket:
        while progress.ts < until:
            answer = _signed(server, progress.ts, until)
            if not answer["direct"]:
                end = int(answer["end_ts"])
                yield from server.pulled(replace(query, since=None, cursor=progress.cursor, until=end))
                read, refused = read.moved(end), 0
                progress = read.progress
                continue
            try:
                for found, later, reached in read.batches(answer, bucket.fetch):
                    if found:
                        yield [event_batch(batch, None) for batch in found]
                    refused = 0 if reached.cursor != progress.cursor else refused
                    read, progress = later, reached
                    if reached.blocked:  # the pull says which row cannot be decoded
                        yield from server.pulled(replace(query, since=None, cursor=reached.cursor))
                        return
            except RangeEnded:
                refused += 1
                if refused == _REFUSALS:
                    _warn(answer)
                    yield from server.pulled(replace(query, since=None, cursor=progress.cursor))
                    return
                server.sleep(_PAUSE_S * (0.5 + server.patience.random()))


def _warn(answer: dict[str, Any]) -> None:
    """Warn that the object store refuses the URLs of an answer, and say what to do."""
    host = urlsplit(answer["objects"][0]["groups"][0]["url"]).netloc
    warn(
        f"the object store at {host} refuses URLs that were just signed, so the rows are pulled from the API server. "
        "Compare its clock, the tenant's key and the setting TISTREAM_API__SIGNED__ENDPOINT, or read without direct",
        stacklevel=3,
    )


def _signed(server: Server, low: int, high: int) -> dict[str, Any]:
    """The answer of SignedChanges."""
    fetch = Fetch(server.options.scope.path("changes", "signed"), {"start_ts": str(low), "end_ts": str(high)})
    return server.transport.ask(server.patience.ask(fetch, json_of))
