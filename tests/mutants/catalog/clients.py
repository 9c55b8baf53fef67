"""The client: each event is delivered once, whatever dies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants.mutant import Function, mutant

KILLED = "test_each_change_is_in_one_batch_wherever_a_process_is_killed"


@mutant(
    "tistream_client:ndjson.page_of",
    invariants=(18,),
    catchers=("test_of_an_answer_that_was_cut_off_nothing_is_delivered",),
)
def client_delivers_a_page_that_was_cut_off(original: Function) -> Function:
    """The whole lines of an answer that was cut off are delivered, and come again after the reconnect."""

    def broken(answer: Any, after: Any, columns: Any) -> Any:
        whole = bytes(answer.body[: answer.body.rfind(b"\n") + 1])
        if b'"type": "resolved"' in whole or b'"type": "continue"' in whole:
            return original(answer, after, columns)
        end = b'{"type": "continue", "cursor": "%s"}\n' % (after or "").encode()
        return original(replace(answer, body=whole + end), after, columns)

    return broken


@mutant(
    "tistream_client:Changes.follow",
    invariants=(18,),
    catchers=("test_a_file_continues_a_consumer_that_was_stopped",),
)
def client_saves_the_cursor_before_the_events(original: Function) -> Function:
    """A checkpoint is stored before the events of its page are handed out: those of a consumer that dies are lost."""

    def broken(self: Any, checkpoint: Any = None) -> Any:
        call = self._call if checkpoint is None else self._call.at(checkpoint.load())
        for page in type(self)(call, self._transport, self._patience).pages(follow=True):
            if checkpoint is not None:
                checkpoint.save(page)
            yield from page.events

    return broken


@mutant(
    "tistream_client:OnConnection.save",
    invariants=(18,),
    catchers=("test_two_consumers_of_one_name_do_not_both_write[sqlite]",),
)
def client_stores_a_cursor_whatever_is_stored(original: Function) -> Function:
    """A checkpoint in a database takes the cursor of any page, also of one that another consumer has written."""

    def broken(self: Any, position: Any) -> None:
        stored = self._stored(lock=True)
        original(self, position if stored is None else replace(position, after=stored))

    return broken


@mutant(
    "tistream_client:offsets.batch",
    invariants=(18,),
    catchers=("test_a_batch_begins_where_its_offset_says", KILLED),
)
def spark_repeats_a_batch_from_where_its_process_begins(original: Function) -> Function:
    """A batch begins at the offset before it. Of the first one each process with `startingTs=now` has another."""

    def broken(start: Any, end: Any) -> Any:
        return original(start, {**end, "from": start["to"]} if "from" in end else end)

    return broken


@mutant(
    "tistream_client:offsets.batch",
    invariants=(18,),
    catchers=("test_a_first_batch_without_changes_is_empty_wherever_the_next_process_begins", KILLED),
)
def spark_reads_from_the_beginning_to_a_first_offset(original: Function) -> Function:
    """A first batch without changes that is repeated has what lies between the beginnings of both processes."""

    def broken(start: Any, end: Any) -> Any:
        return original(start, end if "from" in end or "snapshot" in end else {"from": start.get("to", "0"), **end})

    return broken


@mutant("tistream_client:offsets.changes_after", invariants=(18,), catchers=(KILLED,))
def spark_begins_a_batch_above_the_last_one(original: Function) -> Function:
    """A batch begins one ts above the end of the one before, and lacks the changes there."""

    def broken(start: Any, high: int) -> Any:
        found = original(start, high)
        return found if found is start else {**found, "from": str(int(found["from"]) + 1)}

    return broken


@mutant(
    "tistream_client:end_with",
    invariants=(18,),
    catchers=("test_a_batch_ends_at_what_is_resolved_the_span_or_a_bound",),
)
def spark_ends_a_batch_above_what_is_resolved(original: Function) -> Function:
    """A batch covers its whole span, also above the newest ts: it would have other rows when it is repeated."""
    return lambda change, newest, span, bounds: original(change, max(newest, change + (span or 0)), span, bounds)


@mutant(
    "tistream_client:end_without",
    invariants=(19,),
    catchers=("test_the_offset_of_an_idle_table_moves_each_minute",),
)
def spark_leaves_the_offset_of_an_idle_table(original: Function) -> Function:
    """The offset of a table without changes stays, until it is below the retention of the log."""
    return lambda low, resolved, bounds, *, at_once: original(low, resolved, bounds, at_once=True) if at_once else low
