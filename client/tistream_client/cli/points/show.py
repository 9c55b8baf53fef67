"""Prints the results of reads at a point in time: as tables for people, or as lines of JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tistream_client.cli.api_client import json_line
from tistream_client.cli.errors import CliError
from tistream_client.cli.output import cell, colored
from tistream_client.cli.points.reads import Line
from tistream_client.cli.times import shown_time

# The widths of a table's columns are computed from this number of rows; the next rows are printed as further tables.
WIDTH_ROWS = 100
_SIGNS = {"put": "~", "delete": "-"}


def show_json(lines: Iterable[Line]) -> None:
    """Print each line as a JSON object."""
    for line in lines:
        sys.stdout.buffer.write(json_line(line))


def show_rows(lines: Iterable[Line]) -> None:
    """Print rows as a table, with the time of each row's last change. Then print the ts and, if there are more rows,
    the cursor."""
    for some in _lots(lines):
        rows = [line for line in some if line["type"] == "row"]
        if rows:
            names = list(rows[0]["row"])
            print_table([*map(cell, names), "changed"], ([*map(cell, row["row"].values()), shown_time(row["commit_ts"])]
                                              for row in rows))  # fmt: skip
        for line in some:
            if line["type"] == "end":
                _end(line)


def show_history(versions: Iterable[Line]) -> None:
    """Print the versions of a row, newest first, with the changes of each."""
    found, failure = _arrived(versions)
    print_table(
        ["time", "commit_ts", "start_ts", "op", "change"],
        ([shown_time(one["commit_ts"]), one["commit_ts"], one["start_ts"], _op(one), change_of(one)] for one in found),
    )
    if failure is not None:
        raise failure


def show_row_diff(versions: Iterable[Line]) -> None:
    """Print the history of a row as differences, in colour on a terminal."""
    for line in row_diff(versions, color=colored(None, sys.stdout, os.environ)):
        sys.stdout.write(f"{line}\n")


def oldest_first(versions: Iterable[Line]) -> Iterator[Line]:
    """Reverse the order of versions. Those that have arrived are yielded before an error."""
    found, failure = _arrived(versions)
    yield from reversed(found)
    if failure is not None:
        raise failure


def show_events(lines: Iterable[Line]) -> None:
    """Print row events as a table: new rows (+), changed rows (~) and deleted rows (-)."""
    for some in _lots(lines):
        rows = [line for line in some if line["type"] == "row"]
        if rows:
            print_table(
                ["", "table", "key", "change"],
                (
                    [sign(row), f"{cell(row['database'])}.{cell(row['table'])}", members(row["key"]), change_of(row)]
                    for row in rows
                ),
            )
        for line in some:
            if line["type"] == "end":
                _end(line)


def row_diff(versions: Iterable[Line], *, color: bool) -> Iterator[str]:
    """Lines that show a row's versions, oldest first, each with the values that it removed (-) and added (+)."""

    def painted(code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color else text

    for one in versions:
        yield painted(1, f"@@ {shown_time(one['commit_ts'])}  {_op(one)}  commit_ts {one['commit_ts']}")
        row, old = one["row"] or {}, one["old_row"] or {}
        for name in dict.fromkeys([*old, *row]):
            if name in old and (name not in row or row[name] != old[name]):
                yield painted(31, f"- {cell(name)}: {cell(old[name])}")
            if name in row and (name not in old or row[name] != old[name]):
                yield painted(32, f"+ {cell(name)}: {cell(row[name])}")


def sign(event: Mapping[str, Any]) -> str:
    """The sign of an event: + for a new row, ~ for a changed one, - for a deleted one."""
    return "+" if event["op"] == "put" and event["old_row"] is None else _SIGNS[event["op"]]


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: on a terminal with aligned columns, otherwise as tab-separated lines."""
    if not sys.stdout.isatty():
        for row in chain([head], rows):
            sys.stdout.write("\t".join(row) + "\n")
        return
    from rich.console import Console  # noqa: PLC0415 - takes time that a command without a terminal saves
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for name in head:
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*(Text(one) for one in row))
    Console(file=sys.stdout).print(table)


def _lots(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in lists of WIDTH_ROWS, of which the last may be shorter. If no more lines arrive, those that
    have arrived are yielded before the error: its advice is how to continue after them."""
    some: list[Line] = []
    try:
        for line in lines:
            some.append(line)
            if len(some) == WIDTH_ROWS:
                yield some
                some = []
    except CliError:
        if some:
            yield some
        raise
    if some:
        yield some


def _arrived(lines: Iterable[Line]) -> tuple[list[Line], CliError | None]:
    """The lines that have arrived, and the error that ended them, whose advice is how to continue after them. An error
    before the first line is raised."""
    found: list[Line] = []
    try:
        for line in lines:
            found.append(line)
    except CliError as error:
        if not found:
            raise
        return found, error
    return found, None


def _op(version: Line) -> str:
    return "insert" if version["op"] == "put" and version["old_row"] is None else version["op"].replace("put", "update")


def change_of(event: Mapping[str, Any]) -> str:
    """Format what an event changed: the columns that differ, or all of a new or a deleted row."""
    row, old = event["row"], event["old_row"]
    if row is None:
        return members(old)
    if old is None:
        return members(row)
    return ", ".join(f"{cell(name)}: {cell(old.get(name))} -> {cell(value)}" for name, value in _changed(row, old))


def _changed(row: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in row.items() if old.get(name) != value)


def members(row: Mapping[str, Any]) -> str:
    """Format a row as its columns with their values: `id=1, total=20`."""
    return ", ".join(f"{cell(name)}={cell(value)}" for name, value in row.items())


def _end(line: Line) -> None:
    stamps = {name: line[name] for name in ("ts", "from", "to", "start_ts", "commit_ts") if name in line}
    summary = ", ".join(f"{name} {ts} ({shown_time(ts)})" for name, ts in stamps.items())
    more = f"; more with --cursor {line['cursor']}" if line.get("cursor") else ""
    sys.stderr.write(f"{summary}{more}\n")
