"""Reads at a point in time from the API, page by page, as parsed lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tistream_client.cli.again import Patience, given_up, waited_for
from tistream_client.cli.api_client import ApiClient, tenant_path
from tistream_client.cli.errors import LATER, USAGE, CliError, NoAnswer, Refused, failed
from tistream_client.cli.importing import INTERRUPTED
from tistream_client.core.errors import ApiError, Gone

Line = dict[str, Any]
PAGE = 10_000
_LAST = ("end", "resolved", "continue")  # types of an answer's last line
_CUT = "the answer ended before its last line, so the API server may have stopped"


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a table, with the cluster and tenant that it belongs to."""

    cluster: str
    tenant: str
    database: str
    table: str

    def path(self, call: str) -> str:
        """The URL path of a call about the table."""
        return tenant_path(self.cluster, self.tenant, "databases", self.database, "tables", self.table, call)

    @classmethod
    def parse(cls, cluster: str, tenant: str, name: str) -> Named:
        """Parse `database.table`. Further dots belong to the table's name. Raises CliError if one of the two names is
        missing."""
        database, point, table = name.partition(".")
        if not (database and point and table):
            raise CliError(f"{name!r} does not name a table: use DATABASE.TABLE, such as shop.orders", USAGE)
        return cls(cluster, tenant, database, table)


@dataclass(slots=True)
class _Retries:
    """Repeats the requests of one read that is sent in parts. `option` is the option of the command that continues the
    read at a given position."""

    option: str
    sleep: Callable[[float], None]
    begun: bool = False
    _patience: Patience = field(default_factory=lambda: Patience(follow=False), init=False)
    _said: str = field(default="", init=False)

    def wait(self, error: CliError, received: int, position: str | None) -> None:
        """Wait until the failed request may be sent again. `received` is the number of lines so far, and `position`
        where the request begins; None: where the read begins. Raises CliError if the error is not a temporary one,
        nothing has arrived yet, or the waits take too long."""
        cause = error.refusal if isinstance(error, Refused) else error
        if not isinstance(cause, LATER):
            raise error
        seconds = self._patience.seconds(cause, received, position) if self.begun else None
        if seconds is None:
            raise given_up(cause, position, 0, self.option) from error
        if waited_for(error) != self._said:
            self._said = waited_for(error)
            sys.stderr.write(f"waiting: {self._said}\n")
        self.sleep(seconds)

    @contextmanager
    def interruptible(self, position: str | None) -> Iterator[None]:
        """Convert Ctrl-C to a CliError that says how to continue, unless the read has no `position` yet."""
        try:
            yield
        except KeyboardInterrupt:
            if position is None:
                raise
            raise CliError(f"interrupted; to continue: {self.option} {position}", INTERRUPTED) from None


def pages(
    client: ApiClient,
    path: str,
    first: Mapping[str, str],
    always: Mapping[str, str],
    limit: int | None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Line]:
    """Read page after page, and yield every line. Each page ends with an `end` line, of which only the last page's is
    yielded. `first` are the parameters of the first request only; later requests have a cursor instead. `always` are
    sent with each page.

    The lines of a page are yielded once it is complete. Once something has arrived, a page that is cut off, or refused
    for now, is asked for again, for up to a minute of waits. Raises CliError; it names the cursor to continue from if
    Ctrl-C or a failure ends the read after a page.
    """
    sent, params = 0, dict(first)
    cursor: str | None = None
    retries = _Retries("--cursor", sleep)
    while True:
        left = PAGE if limit is None else min(PAGE, limit - sent)
        lines: list[Line] = []
        with retries.interruptible(cursor):
            try:
                for line in answer_lines(client, path, {**params, **always, "limit": str(left)}):
                    lines.append(line)
            except CliError as error:
                retries.begun = retries.begun or bool(lines)
                retries.wait(error, sent, cursor)
                continue
        end = lines.pop()
        retries.begun = True
        sent += len(lines)
        yield from lines
        if end["type"] == "resolved" or end["cursor"] is None or (limit is not None and sent >= limit):
            yield end
            return
        cursor = end["cursor"]
        params = {"cursor": cursor}


def answer_lines(client: ApiClient, path: str, params: Mapping[str, str]) -> Iterator[Line]:
    """Yield the parsed lines of one answer, up to its last one. Raises CliError if the API refuses the request, or if
    the answer ends before its last line."""
    last = None
    try:
        for text in client.lines(path, params):
            line = json.loads(text)
            last = line["type"]
            yield line
    except ApiError as error:
        raise failed(error) from error
    if last not in _LAST:
        raise NoAnswer(_CUT)


def earliest(client: ApiClient, path: str) -> str:
    """The earliest ts from which changes can be read, as the refusal of a pull from 0 states it. `path` is that of the
    pull. Raises CliError."""
    try:
        client.answer("GET", f"{path}?start_ts=0&end_ts=0&limit=1")
    except Refused as refused:
        if isinstance(refused.refusal, Gone) and refused.refusal.earliest_ts is not None:
            return str(refused.refusal.earliest_ts)
        raise
    return "0"


def key_text(text: str) -> str:
    """Parse a row's key: JSON as in events, or its columns as `id=1` or `a=1,b=x`. Returns JSON. Raises CliError if a
    part of the text lacks its `=` or its name; JSON is not checked."""
    if text.lstrip().startswith("{"):
        return text
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name and equals for name, equals, _ in parts):
        right = 'use id=1, or a=1,b=x for two columns, or JSON: {"id":"1"}'
        raise CliError(f"{text!r} is not a key: {right}", USAGE)
    return json.dumps({name: value for name, _, value in parts})


def versions(
    client: ApiClient,
    named: Named,
    params: Mapping[str, str],
    limit: int,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Line]:
    """Yield the newest `limit` versions of a row, newest first. Many versions take several requests; after the first
    answer, a request that fails for now is sent again, for up to a minute of waits. Raises CliError; it names the time
    to continue from if Ctrl-C or a failure ends the read after an answer."""
    sent, params = 0, dict(params)
    position: str | None = None
    retries = _Retries("--until", sleep)
    while sent < limit:
        query = {**params, "limit": str(min(limit - sent, PAGE))}
        with retries.interruptible(position):
            try:
                answer = client.call("GET", f"{named.path('history')}?{urlencode(query)}")
            except CliError as error:
                retries.wait(error, sent, position)
                continue
        retries.begun = True
        sent += len(answer["versions"])
        yield from answer["versions"]
        position = answer["next_to"]
        if position is None:
            return
        params["to"] = position
