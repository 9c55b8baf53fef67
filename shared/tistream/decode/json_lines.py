"""Renders lines of JSON from constant texts and the values of columns (docs/api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.column_views import ColumnViews
from tistream.decode.kernels.render_kernel import GROUP_FACTS, Form, render
from tistream.decode.kernels.text_io import FLOAT_CHARS, INT_CHARS

_VALUE_BYTES = max(INT_CHARS, FLOAT_CHARS) + 4  # a number, `null`, or the quotes of a byte string
_OBJECT_BYTES = 4  # brackets, or `null`


@dataclass(frozen=True, slots=True)
class Part:
    """One column of a Group: the constant text before each value, the JSON form of the values, and the values."""

    head: str
    form: Form
    array: Any  # its Arrow type must match the form


@dataclass(frozen=True, slots=True)
class Group:
    """A fragment of every line: `lead`, then the values of one row in all `parts`.

    `places[line]` is the index of that row; if `places` is None, line i has row i. If the index is negative, the
    fragment is `null`, or empty with `silent`. `brackets` encloses the values in `{}`.
    """

    lead: str
    parts: Sequence[Part]
    places: I64 | None = None
    brackets: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """Rendered lines, stored end to end: line i is `data[offsets[i]:offsets[i + 1]]`."""

    data: U8
    offsets: I64


class LineWriter:
    """Renders `count` lines. Each line consists of the groups, in order, and the text `tail`."""

    def __init__(self, count: int, groups: Sequence[Group], tail: str) -> None:
        parts = [part for group in groups for part in group.parts]
        self.count = count
        self._views = ColumnViews([part.array for part in parts])
        self._forms = np.array([int(part.form) for part in parts], np.int64)
        self._groups = np.zeros((len(groups), GROUP_FACTS), np.int64)
        self._places = np.zeros((len(groups), count if any(g.places is not None for g in groups) else 0), np.int64)
        texts: list[bytes] = []
        column = 0
        for number, group in enumerate(groups):
            end = column + len(group.parts)
            facts = (len(texts), column, end, group.brackets, group.silent, group.places is None)
            self._groups[number] = facts
            if group.places is not None:
                self._places[number] = group.places
            texts += [group.lead.encode(), *(part.head.encode() for part in group.parts)]
            column = end
        texts.append(tail.encode())
        self._texts = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        self._text_ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        self._line_bytes = len(self._texts) + _VALUE_BYTES * len(parts) + _OBJECT_BYTES * len(groups)

    def write(self, out_bytes: int) -> Iterator[Written]:
        """Yield all lines in order, in pieces of about `out_bytes` and at least one line. A piece is valid only until
        the next one is requested, because they share a buffer."""
        out = np.empty(out_bytes, np.uint8)
        offsets = np.empty(self.count + 1, np.int64)
        line = 0
        while line < self.count:
            before, into = line, out
            line, room = self._render(line, self.count, out, offsets)
            if line == before:  # the line is longer than the buffer and needs one of its own
                # The kernel requires `line_bytes` of free room before each byte string, so it is added once more.
                into = np.empty(room + self._line_bytes, np.uint8)
                line, _ = self._render(line, line + 1, into, offsets)
                assert line > before, f"line {before} takes more than {len(into)} bytes"
            yield Written(into[: offsets[line - before]], offsets[: line - before + 1])

    def _render(self, line: int, end: int, out: U8, offsets: I64) -> tuple[int, int]:
        views = self._views
        return render(
            line,
            end,
            self._groups,
            self._places,
            self._forms,
            views.values,
            views.value_bytes,
            views.offsets,
            views.rows,
            views.nulls,
            views.null_starts,
            self._texts,
            self._text_ends,
            self._line_bytes,
            out,
            offsets,
        )
