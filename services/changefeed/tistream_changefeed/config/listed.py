"""Parses the lists in a configuration: dispatchers, column selectors, event filters, and the handling of errors by
table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tistream.errors import InvalidRequest
from tistream_changefeed.config.feed_config import DispatcherConfig, EventFilterConfig, SelectorConfig, TableErrorConfig

ENTRIES_MAX = 1_000


def dispatchers(value: Any) -> tuple[DispatcherConfig, ...]:
    """Parse `sink.dispatchers`. `dispatcher` is the old name of the key `partition`. Raises InvalidRequest."""
    out: list[DispatcherConfig] = []
    for number, entry in _entries("sink.dispatchers", value):
        where = f"sink.dispatchers[{number}]"
        known = {"matcher", "topic", "partition", "dispatcher", "index", "columns", "target-schema", "target-table"}
        _refuse_unknown(where, entry, known)
        if entry.get("target-schema") or entry.get("target-table"):
            raise refused(
                f"{where}: target-schema and target-table are not supported, because tables keep their names: remove "
                "them"
            )
        if entry.get("partition") and entry.get("dispatcher"):
            raise refused(f"{where}: partition and dispatcher are one setting: remove dispatcher, its old name")
        out.append(
            DispatcherConfig(
                matcher=texts(f"{where}.matcher", entry.get("matcher")),
                topic=_text(f"{where}.topic", entry.get("topic")) or None,
                partition=_text(f"{where}.partition", entry.get("partition") or entry.get("dispatcher")) or "default",
                index=_text(f"{where}.index", entry.get("index")) or None,
                columns=texts(f"{where}.columns", entry.get("columns") or []),
            )
        )
    return tuple(out)


def column_selectors(value: Any) -> tuple[SelectorConfig, ...]:
    """Parse `sink.column-selectors`. Raises InvalidRequest."""
    out: list[SelectorConfig] = []
    for number, entry in _entries("sink.column-selectors", value):
        where = f"sink.column-selectors[{number}]"
        _refuse_unknown(where, entry, {"matcher", "columns"})
        matcher = texts(f"{where}.matcher", entry.get("matcher"))
        out.append(SelectorConfig(matcher=matcher, columns=texts(f"{where}.columns", entry.get("columns"))))
    return tuple(out)


_FILTER_TEXTS = (
    "ignore-insert-value-expr",
    "ignore-update-old-value-expr",
    "ignore-update-new-value-expr",
    "ignore-delete-value-expr",
)
_FILTER_LISTS = ("ignore-event", "ignore-sql", "ignore-update-only-columns")


def event_filters(value: Any) -> tuple[EventFilterConfig, ...]:
    """Parse `filter.event-filters`. Raises InvalidRequest."""
    out: list[EventFilterConfig] = []
    for number, entry in _entries("filter.event-filters", value):
        where = f"filter.event-filters[{number}]"
        _refuse_unknown(where, entry, {"matcher", *_FILTER_TEXTS, *_FILTER_LISTS})
        fields: dict[str, Any] = {"matcher": texts(f"{where}.matcher", entry.get("matcher"))}
        for name in _FILTER_TEXTS:
            fields[name.replace("-", "_")] = _text(f"{where}.{name}", entry.get(name))
        for name in _FILTER_LISTS:
            fields[name.replace("-", "_")] = texts(f"{where}.{name}", entry.get(name) or [])
        out.append(EventFilterConfig(**fields))
    return tuple(out)


def table_errors(value: Any) -> tuple[TableErrorConfig, ...]:
    """Parse `tistream.tables`. Raises InvalidRequest."""
    out: list[TableErrorConfig] = []
    for number, entry in _entries("tistream.tables", value):
        where = f"tistream.tables[{number}]"
        _refuse_unknown(where, entry, {"matcher", "on-row-error", "on-table-error"})
        fields: dict[str, Any] = {"matcher": texts(f"{where}.matcher", entry.get("matcher"))}
        if "on-row-error" in entry:
            fields["on_row_error"] = _one_of(f"{where}.on-row-error", entry["on-row-error"], ("stop", "dead-letter"))
        if "on-table-error" in entry:
            choices = ("stop-table", "stop-feed", "leave-table")
            fields["on_table_error"] = _one_of(f"{where}.on-table-error", entry["on-table-error"], choices)
        out.append(TableErrorConfig(**fields))
    return tuple(out)


def texts(where: str, value: Any) -> tuple[str, ...]:
    """Check that a value is a list of texts, and return it as a tuple. Raises InvalidRequest, which names the key
    `where`."""
    if value is None:
        raise refused(f"{where} is missing: give a list of texts, for example ['shop.*']")
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise refused(f"{where} = {shown(value)} is not a list of texts: write, for example, ['shop.*']")
    return tuple(value)


def _entries(where: str, value: Any) -> Iterable[tuple[int, Mapping[str, Any]]]:
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise refused(f"{where} = {shown(value)} is not a list of tables: write [[{where}]] before each entry")
    if len(value) > ENTRIES_MAX:
        raise refused(f"{where} has {len(value)} entries: at most {ENTRIES_MAX} are accepted")
    for number, entry in enumerate(value, 1):
        yield number, {str(name).replace("_", "-"): found for name, found in entry.items() if found is not None}


def _refuse_unknown(where: str, entry: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise refused(f"{where}: {unknown[0][:80]!r} is unknown: use {', '.join(sorted(known))}")


def _text(where: str, value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise refused(f"{where} = {shown(value)} is not a text: put it in quotes")
    return value or ""


def _one_of(where: str, value: Any, choices: Sequence[str]) -> str:
    if value not in choices:
        raise refused(f"{where} = {shown(value)} is not one of {', '.join(choices)}")
    return str(value)


def shown(value: object) -> str:
    """Format a value of a configuration for the text of an error, in at most 40 characters."""
    return repr(value)[:40]


def refused(reason: str) -> InvalidRequest:
    """Build the InvalidRequest for an invalid configuration, with this reason."""
    return InvalidRequest(f"config: {reason}", {"parameter": "config"})
