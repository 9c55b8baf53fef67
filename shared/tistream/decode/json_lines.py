"""Renders lines of JSON from constant texts and the values of columns (docs/api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8, Bools, binary_array
from tistream.decode.kernels.column_views import ColumnViews
from tistream.decode.kernels.go_text import printable
from tistream.decode.kernels.render_kernel import GROUP_FACTS, Form, is_plain, render_plain, render_rich, room_of

_OBJECT_BYTES = 4  # brackets, or `null`
_NUMBER_BYTES = 12  # bytes of a usual number
_PIECE_BYTES_MIN, _PIECE_BYTES_MAX = 1 << 16, 1 << 27
_NO_CHARACTERS = np.zeros(1, np.uint8)
_NO_CHARACTERS.flags.writeable = False


@dataclass(frozen=True, slots=True)
class LineColumn:
    """One column of a LineGroup. `head` is the constant text before each value, `form` the JSON form of the values, and
    `array` has the values.

    In a sparse group, the constant text `tail` follows each value. `shown` then says which lines have the column; None:
    all lines.
    """

    head: str
    form: Form
    array: Any  # its Arrow type must match the form
    tail: str = ""
    shown: Bools | None = None


@dataclass(frozen=True, slots=True)
class LineGroup:
    """A fragment that every line has: the text `lead`, then the values of one row in the columns `parts`, then the text
    `end`.

    `places[line]` is the index of the row that a line shows; if `places` is None, line i shows row i. A negative index
    means that the line has no row. Then `null` stands between `lead` and `end`; with `silent`, nothing stands between
    them; with `optional`, `lead` and `end` are left out too. `brackets` encloses the values in `{}`. In a `sparse`
    group a line may lack some parts. Then the constant text before each value begins with a comma, which is left out
    before the first value of a line.
    """

    lead: str
    parts: Sequence[LineColumn]
    places: I64 | None = None
    brackets: bool = False
    silent: bool = False
    optional: bool = False
    sparse: bool = False
    end: str = ""


@dataclass(frozen=True, slots=True)
class RenderedLines:
    """A piece of the rendered lines, stored end to end: line i is `data[offsets[i]:offsets[i + 1]]`."""

    data: U8
    offsets: I64


class LineWriter:
    """Renders `count` lines. Each line consists of the groups, in order, and the constant text `tail`."""

    def __init__(self, count: int, groups: Sequence[LineGroup], tail: str) -> None:
        parts = [part for group in groups for part in group.parts]
        self.count = count
        self._views = ColumnViews([part.array for part in parts])
        self._forms = np.array([int(part.form) for part in parts], np.int64)
        self._groups = np.zeros((len(groups), GROUP_FACTS), np.int64)
        self._places = np.zeros((len(groups), count if any(g.places is not None for g in groups) else 0), np.int64)
        self._shown = np.zeros(len(parts), np.int64)
        self._masks = [None if part.shown is None else np.ascontiguousarray(part.shown) for part in parts]
        for place, mask in enumerate(self._masks):
            if mask is not None:
                self._shown[place] = mask.ctypes.data
        self._printable = printable() if any(part.form is Form.GO_QUOTED for part in parts) else _NO_CHARACTERS
        plain = all(is_plain(part.form) for part in parts) and not any(one.optional or one.sparse for one in groups)
        self._kernel = render_plain if plain else render_rich
        texts: list[bytes] = []
        column = 0
        for number, group in enumerate(groups):
            end = column + len(group.parts)
            last = len(texts) + len(group.parts) * (2 if group.sparse else 1) + 1
            flags = (group.brackets, group.silent, group.places is None, group.optional, group.sparse)
            self._groups[number] = (len(texts), column, end, *flags, last)
            if group.places is not None:
                self._places[number] = group.places
            texts.append(group.lead.encode())
            for part in group.parts:
                assert group.sparse or not part.tail, "only the parts of a sparse group have a tail"
                texts += [part.head.encode(), part.tail.encode()] if group.sparse else [part.head.encode()]
            texts.append(group.end.encode())
            column = end
        texts.append(tail.encode())
        self._texts = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        self._text_ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        room = sum(room_of(part.form) for part in parts)
        self._line_bytes = len(self._texts) + room + _OBJECT_BYTES * len(groups)
        self._estimate = self._line_bytes + count * (len(self._texts) + _NUMBER_BYTES * len(parts))
        self._estimate += sum(int(part.array.nbytes) for part in parts)

    def lines(self, *, text: bool = False) -> Any:
        """Render all lines. Returns a large_binary array, or with `text` a large_string array."""
        data, offsets = [np.empty(0, np.uint8)], [np.zeros(1, np.int64)]
        for written in self.write(min(max(self._estimate, _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)):
            if len(written.offsets) == self.count + 1:
                return binary_array(written.data, written.offsets, None, text=text)
            offsets.append(written.offsets[1:] + offsets[-1][-1])
            data.append(written.data.copy())
        return binary_array(np.concatenate(data), np.concatenate(offsets), None, text=text)

    def write(self, out_bytes: int) -> Iterator[RenderedLines]:
        """Render all lines in order. Yields pieces of about `out_bytes` bytes, each with at least one line. A piece is
        valid only until the next one is requested, because they share a buffer."""
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
            yield RenderedLines(into[: offsets[line - before]], offsets[: line - before + 1])

    def _render(self, line: int, end: int, out: U8, offsets: I64) -> tuple[int, int]:
        views = self._views
        return self._kernel(
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
            self._shown,
            self._printable,
            self._line_bytes,
            out,
            offsets,
        )
