"""Reads changes with `direct=true`: the API server says where row groups are, and this process fetches, decodes and
filters them.

The server answers for one range of commit_ts after the other. What it may not give whole, such as a row group that has
rows of other tables, is pulled. If a URL is refused, the server is asked again from the position that was reached: no
row is missing, and none comes twice. If that is refused too, the rest is pulled. It is also pulled if the server
refuses the request itself, for example its filters, so that errors are those of the pull.
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
from tistream_client.core.errors import BadRequest, UnknownName, WrongArgument
from tistream_client.core.pull import PullQuery
from tistream_client.core.steps import Fetch
from tistream_client.spark.bucket import RangeEnded, bucket_of
from tistream_client.spark.server import Server

_NOTHING_SIGNED = "nothing-signed"  # the code of the error of a server that signs no URLs
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
    """Yield the row events that a pull with `query` sends, in its order, as pages of record batches. They are of one
    table, and have `query.since < commit_ts <= query.until`; the query has both bounds, and all columns. Raises
    WrongArgument, ApiError, NoAnswer."""
    check_decoder()
    # These are not in the client's distribution.
    from tistream.errors import InvalidRequest  # noqa: PLC0415
    from tistream.read.signed.signed_read import TableRead  # noqa: PLC0415

    scope, until = query.scope, query.until
    assert query.since is not None
    assert until is not None
    names = (scope.cluster, scope.tenant, scope.database or "", scope.table or "")
    try:
        read = TableRead.of(*names, query.since, query.filter.get("operations"), query.filter.get("where"))
    except InvalidRequest:
        yield from server.pulled(query)  # the server's error names what is wrong
        return
    begin = progress = read.progress
    refused = 0
    with bucket_of(server) as bucket:
        while progress.ts < until:
            try:
                answer = _signed(server, query, progress.ts)
            except (BadRequest, UnknownName) as error:
                if error.code == _NOTHING_SIGNED:
                    raise
                at_begin = progress == begin
                yield from server.pulled(query if at_begin else replace(query, since=None, cursor=progress.cursor))
                return
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
                    if reached.blocked:  # the pull says which row cannot be decoded or filtered
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


def _signed(server: Server, query: PullQuery, low: int) -> dict[str, Any]:
    """The answer of SignedChanges for the changes of the query above `low`."""
    params = {"start_ts": str(low), "end_ts": str(query.until)}
    params |= {name: value for name, value in query.filter.items() if name in ("operations", "where")}
    fetch = Fetch(server.options.scope.path("changes", "signed"), params)
    return server.transport.ask(server.patience.ask(fetch, json_of))
