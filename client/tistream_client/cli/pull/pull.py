"""`tistream pull`: writes events as NDJSON to stdout, page by page, until the pull has caught up, or endlessly with
--follow."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from tistream_client.cli.again import Patience, given_up, waited_for
from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import LATER, NoAnswer, failed
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.progress import Bar, newest_ts
from tistream_client.cli.times import shown_ts
from tistream_client.core.errors import ApiError, BadRequest, Gone

_PAGE_EVENTS = 10_000
_ROWS = (b'{"type":"row"', b'{"type":"raw"')
_MARK = b'{"type":"snapshot_'
_WAIT_MS = "10000"
_LAST = ("resolved", "continue")  # types of an answer's last line


@dataclass(slots=True)
class PullProgress:
    """The progress of a pull: its counts, its last cursor, and its last resolved_ts."""

    rows: int = 0
    ddls: int = 0
    resolved_ts: str = ""
    cursor: str | None = field(default=None, repr=False)
    last_type: str = ""  # of the lines of this answer
    after_cursor: int = 0  # number of events since the cursor; an answer from that cursor repeats them
    # While rows of a snapshot arrive: the requested time, or the snapshot's ts once that is known.
    snapshot: str | None = None
    waits: bool = False  # whether the last answer had nothing, and the pull's end is not reached

    @property
    def events(self) -> int:
        """The number of row and DDL events."""
        return self.rows + self.ddls

    def pass_over(self, line: bytes, repeated: int) -> int:
        """Skip a line of an answer whose next `repeated` events have been received before. Returns the number of events
        that must still be skipped."""
        if line.startswith((*_ROWS, b'{"type":"ddl"')):
            return repeated - 1
        self.see(line)
        self.after_cursor = repeated
        return repeated

    def see(self, line: bytes) -> None:
        """Record a line that was received. Row events, which are most lines, are recognised by their first bytes,
        because parsing them would be slow."""
        if line.startswith(_ROWS):
            self.rows += 1
            self.after_cursor += 1
            self.last_type = "row"
            return
        event = json.loads(line)
        self.last_type = event["type"]
        if self.last_type == "ddl":
            self.ddls += 1
            self.after_cursor += 1
        elif self.last_type == "snapshot_begin":
            # Not `now`, so that after a lost connection the same rows are read again.
            self.snapshot = event["snapshot_ts"]
        elif self.last_type in _LAST:
            if self.last_type == "resolved":  # not at snapshot_end, behind which no cursor is known yet
                self.snapshot = None
            self.cursor, self.after_cursor = event["cursor"], 0
            self.resolved_ts = event.get("resolved_ts", self.resolved_ts)


def pull(
    client: ApiClient,
    request: PullRequest,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[bytes, PullProgress]]:
    """Yield every line of the pull, with the progress after it. Ends when the pull has caught up, at end_ts, or after
    `limit` events.

    Once something has arrived, a pull whose answer is cut off, or refused for now, asks again from the last cursor, and
    skips the events received since: without `follow` for up to a minute of waits. With `follow`, it also waits while
    the server cannot serve the tenant yet. `say` is called with what it waits for. Raises CliError.
    """
    path = changes_path(request.cluster, request.tenant, request.database, request.table, raw=request.raw)
    progress = PullProgress(cursor=request.cursor, snapshot=request.snapshot)
    start_ts = request.start_ts
    said, marks = "", set[bytes]()
    patience, begun = Patience(request.follow), False
    while True:
        before, repeated, in_snapshot = progress.events, progress.after_cursor, progress.snapshot is not None
        got, progress.last_type = in_snapshot or repeated > 0, ""
        try:
            for line in _marked_once(client.lines(path, page_parameters(request, progress, start_ts or "0")), marks):
                if repeated:
                    repeated = progress.pass_over(line, repeated)
                    continue
                progress.see(line)
                yield line, progress
            if progress.last_type not in _LAST:
                raise NoAnswer("the answer ended before its last line, so the API server may have stopped")
        except LATER as error:
            begun = begun or progress.last_type != ""
            again = begun or (request.follow and isinstance(error, ApiError))
            seconds = patience.seconds(error, progress.events, progress.cursor) if again else None
            if seconds is None:
                raise given_up(error, progress.cursor if begun else None, progress.after_cursor) from error
            if waited_for(error) != said and not (begun and request.follow):
                said = waited_for(error)
                say(said)
            sleep(seconds)
            continue
        except ApiError as error:
            if is_past_end(request, error):
                return
            start_ts = earliest_ts(error, begun=start_ts is not None or progress.cursor is not None or in_snapshot)
            continue
        begun, got = True, got or progress.events > before
        if is_over(request, progress, got_events=got):
            return
        if waits := waits_for(request, progress, got_events=got):
            say(waits)


def _marked_once(lines: Iterator[bytes], marks: set[bytes]) -> Iterator[bytes]:
    """Yield the lines. Lines that begin or end a snapshot are left out if they are in `marks`, because an answer that
    is requested again repeats them; new ones are added to `marks`."""
    for line in lines:
        if not line.startswith(_MARK):
            yield line
        elif line not in marks:
            marks.add(line)
            yield line


def earliest_ts(error: ApiError, *, begun: bool) -> str:
    """The earliest ts at which a pull may begin, from the error of a pull that began below it. Raises CliError for any
    other error. `begun`: the pull began at a cursor or at a ts that the user gave; then no error is accepted."""
    if begun or not isinstance(error, Gone) or error.earliest_ts is None:
        raise failed(error) from error
    return str(error.earliest_ts)


def is_past_end(request: PullRequest, error: ApiError) -> bool:
    """Whether a pull was refused because its cursor is above `end_ts`: then an earlier pull has returned all events up
    to `end_ts`."""
    return request.cursor is not None and isinstance(error, BadRequest) and error.parameter == "end_ts"


def is_over(request: PullRequest, progress: PullProgress, *, got_events: bool) -> bool:
    """Whether the pull ends after the page that was read last. `got_events`: the page had events, or rows of a
    snapshot."""
    if request.limit is not None and progress.events >= request.limit:
        return True
    if request.follow or progress.last_type == "continue":
        return False
    if request.end_ts is not None:
        return int(progress.resolved_ts) >= int(request.end_ts)
    return not got_events


def waits_for(request: PullRequest, progress: PullProgress, *, got_events: bool) -> str | None:
    """Describe what a pull waits for, if it has an end and the last answer had no events; otherwise None. Sets
    `progress.waits` accordingly."""
    progress.waits = request.end_ts is not None and not got_events
    return f"for everything up to {shown_ts(request.end_ts)} (--until)" if progress.waits else None


def page_parameters(request: PullRequest, progress: PullProgress, start_ts: str) -> dict[str, str]:
    """The query parameters that request the next page: with the cursor or, before the first page, with `start_ts`."""
    # After a cut the answer begins with the events that have arrived since the cursor.
    left = _PAGE_EVENTS if request.limit is None else request.limit - progress.events + progress.after_cursor
    limit = str(min(left, _PAGE_EVENTS))
    if progress.snapshot is not None:
        return {"limit": limit} | (
            {"snapshot": progress.snapshot} if progress.cursor is None else {"cursor": progress.cursor}
        )
    params = {"cursor": progress.cursor} if progress.cursor is not None else {"start_ts": start_ts}
    if request.keyspace is not None:
        params["keyspace"] = str(request.keyspace)
    params |= request.chosen
    if request.follow:
        return {**params, "follow": "true"}
    params["limit"] = limit
    if request.end_ts is not None:
        params["end_ts"] = request.end_ts
        if progress.waits:
            params["wait_ms"] = _WAIT_MS
    return params


def run_pull(client: ApiClient, request: PullRequest, out: IO[bytes], bar: Bar) -> None:
    """Write every line to `out`, and show the progress with `bar`. Ends without an error if the reader of `out` closes
    the pipe. Raises CliError."""
    try:
        _copy(client, request, out, bar)
    except BrokenPipeError:
        # The reader, for example `head`, has closed the pipe. Redirect stdout so that the flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        bar.close()


def _copy(client: ApiClient, request: PullRequest, out: IO[bytes], bar: Bar) -> None:
    seen = bar.seen
    for count, (line, progress) in enumerate(pull(client, request, say=bar.say)):
        out.write(line + b"\n")
        seen.size += len(line) + 1
        if progress.last_type != "row":
            out.flush()
        if count % 1000 == 0 or progress.last_type != "row":
            seen.rows = progress.rows
            seen.ts = max(seen.ts, newest_ts(line), int(progress.resolved_ts or 0))
            bar.tick()
    out.flush()
