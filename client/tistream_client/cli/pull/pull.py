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

from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import LATER, NoAnswer, failed
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.progress import Bar, newest_ts
from tistream_client.core.errors import ApiError, BadRequest, Gone

_PAGE_EVENTS = 10_000
_ROWS = (b'{"type":"row"', b'{"type":"raw"')
_MARK = b'{"type":"snapshot_'
_WAIT_MS = "10000"
_RECONNECT_SECONDS = 1.0


@dataclass(slots=True)
class PullProgress:
    """The progress of a pull: its counts, its last cursor, and its last resolved_ts."""

    rows: int = 0
    ddls: int = 0
    resolved_ts: str = ""
    cursor: str | None = field(default=None, repr=False)
    last_type: str = ""
    after_cursor: int = 0  # number of events since the cursor; an answer from that cursor repeats them
    # While rows of a snapshot arrive: the requested time, or the snapshot's ts once that is known.
    snapshot: str | None = None

    @property
    def events(self) -> int:
        """The number of row and DDL events."""
        return self.rows + self.ddls

    def pass_over(self, line: bytes, repeated: int) -> int:
        """Skip a line of an answer whose next `repeated` events have been received before. Returns how many of these
        events are still to come."""
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
        elif self.last_type in ("resolved", "continue"):
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

    With `follow`, it waits while the server cannot serve the tenant yet, and calls `say` with the reason. When the
    connection is lost, it resumes from the last cursor and skips the events received since. Raises CliError, also if an
    answer ends before its last line.
    """
    path = changes_path(request.cluster, request.tenant, request.database, request.table, raw=request.raw)
    progress = PullProgress(cursor=request.cursor, snapshot=request.snapshot)
    start_ts = request.start_ts
    said, marks = "", set[bytes]()
    while True:
        before, repeated, in_snapshot = progress.events, progress.after_cursor, progress.snapshot is not None
        try:
            for line in _marked_once(client.lines(path, page_parameters(request, progress, start_ts or "0")), marks):
                if repeated:
                    repeated = progress.pass_over(line, repeated)
                    continue
                progress.see(line)
                yield line, progress
        except LATER as error:
            if not request.follow or (isinstance(error, NoAnswer) and not progress.last_type):
                raise (failed(error) if isinstance(error, ApiError) else error) from error
            if not progress.last_type and str(error) != said:
                said = str(error)
                say(said)
            sleep(_RECONNECT_SECONDS)
            continue
        except Gone as error:
            if start_ts is not None or progress.cursor is not None or in_snapshot or error.earliest_ts is None:
                raise failed(error) from error
            start_ts = str(error.earliest_ts)  # without a given start, begin at the earliest ts
            continue
        except ApiError as error:
            if is_past_end(request, error):
                return
            raise failed(error) from error
        if progress.last_type not in ("resolved", "continue"):
            raise NoAnswer(
                "the answer ended before its last line, so the API server may have stopped: pull again from the last "
                "cursor"
            )
        if is_over(request, progress, got_events=in_snapshot or progress.events > before):
            return


def _marked_once(lines: Iterator[bytes], marks: set[bytes]) -> Iterator[bytes]:
    """The lines without the marks of a snapshot that an answer before had, which was cut off. `marks` are those."""
    for line in lines:
        if not line.startswith(_MARK):
            yield line
        elif line not in marks:
            marks.add(line)
            yield line


def is_past_end(request: PullRequest, error: ApiError) -> bool:
    """Whether a pull was refused because its cursor is above `end_ts`: an earlier pull has everything."""
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


def page_parameters(request: PullRequest, progress: PullProgress, start_ts: str) -> dict[str, str]:
    """The query parameters that request the next page: with the cursor or, before the first page, with `start_ts`."""
    left = _PAGE_EVENTS if request.limit is None else request.limit - progress.events
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
        params |= {"end_ts": request.end_ts, "wait_ms": _WAIT_MS}
    return params


def run_pull(client: ApiClient, request: PullRequest, out: IO[bytes], bar: Bar) -> None:
    """Write every line to `out`, and show the progress."""
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
