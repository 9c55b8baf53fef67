"""The kernel that renders lines of JSON from Arrow buffers. A line may combine rows of several tables."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np

from tistream.decode.kernels.arrow_buffers import I64, U8
from tistream.decode.kernels.go_floats import PLAIN_CHARS, put_go_double, put_go_single
from tistream.decode.kernels.go_text import (
    JSON_BYTES_MAX,
    QUOTED_BYTES_MAX,
    put_escaped,
    put_go_quoted,
    put_json_document,
    put_latin1,
)
from tistream.decode.kernels.jit import i64, inline, kernel, u64
from tistream.decode.kernels.memory import carray, pointer
from tistream.decode.kernels.text_io import (
    ESCAPED_BYTES_MAX,
    FLOAT_CHARS,
    INT_CHARS,
    put_base64,
    put_double,
    put_int,
    put_quoted,
    put_raw,
    put_single,
    put_uint,
)

_QUOTE = 0x22
_DOUBLE_EXPONENT = 0x7FF << 52
_SINGLE_EXPONENT = 0xFF << 23


class Form(IntEnum):
    """The JSON form of a column's values."""

    INT = 0  # int64 as a number
    UINT = 1  # uint64 as a number
    INT_TEXT = 2  # int64 as a quoted number
    UINT_TEXT = 3
    SINGLE = 4
    DOUBLE = 5
    ESCAPED = 6  # text, with escapes
    QUOTED = 7  # text without characters to escape: digits and punctuation of numbers and times
    RAW = 8  # JSON text
    BASE64 = 9
    # The notations of Go's JSON writers:
    GO_SINGLE = 10  # with an exponent below 1e-6 and from 1e21 on
    GO_DOUBLE = 11
    SINGLE_TEXT = 12  # quoted, never with an exponent
    DOUBLE_TEXT = 13
    GO_ESCAPED = 14  # text, with Go's escapes
    HTML_CODED = 15  # and with `<`, `>`, `&`, U+2028 and U+2029 escaped
    GO_QUOTED = 16  # bytes in Go's quoting, escaped again
    LATIN1 = 17  # bytes as the characters U+0000 to U+00FF; HTML escapes
    GO_DOCUMENT = 18  # JSON text as a string, with blanks as TiDB shows them
    HTML_DOCUMENT = 19


# Bytes of text for each byte of the value; no entry: the value is a number.
_EXPANSIONS = {
    Form.ESCAPED: ESCAPED_BYTES_MAX,
    Form.QUOTED: 2,
    Form.RAW: 2,
    Form.BASE64: 2,
    Form.GO_ESCAPED: JSON_BYTES_MAX,
    Form.HTML_CODED: JSON_BYTES_MAX,
    Form.GO_QUOTED: QUOTED_BYTES_MAX,
    Form.LATIN1: JSON_BYTES_MAX,
    Form.GO_DOCUMENT: JSON_BYTES_MAX,
    Form.HTML_DOCUMENT: JSON_BYTES_MAX,
}
_EXPANSION = np.array([_EXPANSIONS.get(form, 0) for form in Form], np.int64)
_LONG_NUMBERS = frozenset({Form.SINGLE_TEXT, Form.DOUBLE_TEXT})

# Columns of the kernel's array `groups`, which has one row per group.
FIRST_TEXT, FIRST_COLUMN, END_COLUMN, BRACKETS, SILENT, ITSELF, OPTIONAL, SPARSE, LAST_TEXT = range(9)
GROUP_FACTS = 9

_INT, _INT_TEXT, _UINT_TEXT = int(Form.INT), int(Form.INT_TEXT), int(Form.UINT_TEXT)
_SINGLE, _DOUBLE = int(Form.SINGLE), int(Form.DOUBLE)
_ESCAPED, _QUOTED, _RAW, _BASE64 = int(Form.ESCAPED), int(Form.QUOTED), int(Form.RAW), int(Form.BASE64)
_GO_SINGLE, _SINGLE_TEXT = int(Form.GO_SINGLE), int(Form.SINGLE_TEXT)
_GO_DOUBLE = int(Form.GO_DOUBLE)
_GO_ESCAPED, _HTML_CODED = int(Form.GO_ESCAPED), int(Form.HTML_CODED)
_GO_QUOTED, _LATIN1 = int(Form.GO_QUOTED), int(Form.LATIN1)
_GO_DOCUMENT, _HTML_DOCUMENT = int(Form.GO_DOCUMENT), int(Form.HTML_DOCUMENT)
_NULL = np.frombuffer(b"null", np.uint8)


def is_plain(form: Form) -> bool:
    """Whether the kernel `render_plain`, which pulls use, can write this form."""
    return form <= Form.BASE64


def room_of(form: Form) -> int:
    """An upper bound of a value's length as text, in bytes, for values of fixed size. For byte strings it covers only
    what does not grow with their length."""
    return (PLAIN_CHARS if form in _LONG_NUMBERS else max(INT_CHARS, FLOAT_CHARS)) + 4


_Render = Callable[..., tuple[int, int]]


# One function, because calls of helpers with this many arrays cost numba more than their work. It is compiled twice,
# because pulls need only plain groups and the forms of JSON, and would take a third longer with the rest.
def _compiled(rich: bool) -> _Render:  # noqa: PLR0915
    @kernel
    def render(  # noqa: PLR0912
        first: int,
        last: int,
        groups: I64,
        places: I64,
        forms: I64,
        values: I64,
        value_bytes: I64,
        offsets: I64,
        rows: I64,
        nulls: I64,
        null_starts: I64,
        texts: U8,
        text_ends: I64,
        shown: I64,
        printable: U8,
        line_bytes: int,
        out: U8,
        out_offsets: I64,
    ) -> tuple[int, int]:
        """Write the lines [first, last) to `out` until it is full. Return (the first line not written, the bytes that
        it needs), or (last, 0).

        A line consists of its groups in order, and a constant text at the end. Group g consists of a constant text, its
        columns, and another constant text. Each column consists of a constant text and the value in row `places[g,
        line]` (ITSELF: in row `line`). If the place is negative, `null` stands between the first and the last text of
        the group (SILENT: nothing does; OPTIONAL: the texts are left out too). In a SPARSE group each value is followed
        by one more text. A column is then written only in the lines whose flag is set at the address `shown` (0: in all
        lines), and the text before the first column loses its first byte, a comma. `line_bytes` is an upper bound of a
        line's length without its byte strings. `values`, `value_bytes`, `offsets`, `rows`, `nulls` and `null_starts`
        are those of ColumnViews; `forms` has the Form of each column. `texts` has all constant texts in order; text i
        ends at `text_ends[i]`.
        """
        at = 0
        out_offsets[0] = 0
        for line in range(first, last):
            if line_bytes > len(out) - at:
                return line, line_bytes + _bytes_bound(line, groups, places, forms, offsets, rows)
            for group in range(len(groups)):
                row = line if groups[group, ITSELF] else places[group, line]
                if rich and row < 0 and groups[group, OPTIONAL]:
                    continue
                text = groups[group, FIRST_TEXT]
                at = _put_text(out, at, texts, text_ends, text)
                if row < 0:
                    if not groups[group, SILENT]:
                        at = put_raw(out, at, _NULL, 0, 4)
                    at = _put_text(out, at, texts, text_ends, groups[group, LAST_TEXT])
                    continue
                if groups[group, BRACKETS]:
                    out[at] = 0x7B
                    at += 1
                sparse = groups[group, SPARSE] if rich else i64(0)
                comma = sparse  # bytes of the next head that are left out
                for column in range(groups[group, FIRST_COLUMN], groups[group, END_COLUMN]):
                    text += 1
                    if rich and sparse:
                        text += 1
                        if shown[column] != 0 and not carray(pointer(shown[column]), (last,), np.uint8)[line]:
                            continue
                        at = put_raw(out, at, texts, text_ends[text - 2] + comma, text_ends[text - 1])
                        comma = 0
                    else:
                        at = _put_text(out, at, texts, text_ends, text)
                    if nulls[column] != 0 and not is_valid(nulls[column], null_starts[column] + row):
                        at = put_raw(out, at, _NULL, 0, 4)
                    elif (_EXPANSION[forms[column]] == 0) if rich else (forms[column] <= _DOUBLE):
                        at = _put_number(out, at, forms[column], values[column], row, rich)
                    else:
                        bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                        size = bounds[row + 1] - bounds[row]
                        if rich:
                            size *= _EXPANSION[forms[column]]
                        else:
                            size *= ESCAPED_BYTES_MAX if forms[column] == _ESCAPED else 2
                        if line_bytes + size > len(out) - at:
                            return line, line_bytes + _bytes_bound(line, groups, places, forms, offsets, rows)
                        data = carray(pointer(values[column]), (value_bytes[column],), np.uint8)
                        at = _put_bytes(out, at, forms[column], data, bounds[row], bounds[row + 1], printable, rich)
                    if rich and sparse:
                        at = _put_text(out, at, texts, text_ends, text)
                if groups[group, BRACKETS]:
                    out[at] = 0x7D
                    at += 1
                at = _put_text(out, at, texts, text_ends, groups[group, LAST_TEXT])
            at = _put_text(out, at, texts, text_ends, len(text_ends) - 1)
            out_offsets[line - first + 1] = at
        return last, 0

    return render


render_plain, render_rich = _compiled(False), _compiled(True)


@inline
def _bytes_bound(line: int, groups: I64, places: I64, forms: I64, offsets: I64, rows: I64) -> int:
    """An upper bound of the bytes that the byte strings of one line need as text."""
    total = i64(0)
    for group in range(len(groups)):
        row = line if groups[group, ITSELF] else places[group, line]
        if row >= 0:
            for column in range(groups[group, FIRST_COLUMN], groups[group, END_COLUMN]):
                expansion = _EXPANSION[forms[column]]
                if expansion > 0:
                    bounds = carray(pointer(offsets[column]), (rows[column] + 1,), np.int64)
                    size = bounds[row + 1] - bounds[row]
                    total += size * expansion
    return total


@inline
def _put_text(out: U8, at: int, texts: U8, text_ends: I64, text: int) -> int:
    return put_raw(out, at, texts, text_ends[text - 1] if text > 0 else i64(0), text_ends[text])


@inline
def is_valid(address: int, bit: int) -> bool:
    """Whether the bit with index `bit` is set in the validity bitmap at `address`."""
    bits = carray(pointer(address), ((bit >> 3) + 1,), np.uint8)
    return bool((bits[bit >> 3] >> (bit & 7)) & 1)


@inline
def _put_number(out: U8, at: int, form: int, address: int, row: int, rich: bool) -> int:
    if form > _UINT_TEXT:
        if form == _SINGLE or (rich and form in (_GO_SINGLE, _SINGLE_TEXT)):
            return _put_single(out, at, form, i64(carray(pointer(address), (row + 1,), np.uint32)[row]), rich)
        return _put_double(out, at, form, carray(pointer(address), (row + 1,), np.int64)[row], rich)
    value = carray(pointer(address), (row + 1,), np.int64)[row]
    quoted = form in (_INT_TEXT, _UINT_TEXT)
    if quoted:
        out[at] = _QUOTE
        at += 1
    if form in (_INT, _INT_TEXT):
        at = put_int(out, at, value)
    else:
        at = put_uint(out, at, u64(value))
    if quoted:
        out[at] = _QUOTE
        at += 1
    return at


@inline
def _put_single(out: U8, at: int, form: int, bits: int, rich: bool) -> int:
    if (bits & _SINGLE_EXPONENT) == _SINGLE_EXPONENT:
        return put_raw(out, at, _NULL, 0, 4)
    if not rich or form == _SINGLE:
        return put_single(out, at, bits)
    if form == _GO_SINGLE:
        return put_go_single(out, at, bits, False)
    out[at] = _QUOTE
    at = put_go_single(out, at + 1, bits, True)
    out[at] = _QUOTE
    return at + 1


@inline
def _put_double(out: U8, at: int, form: int, bits: int, rich: bool) -> int:
    if (bits & _DOUBLE_EXPONENT) == _DOUBLE_EXPONENT:
        return put_raw(out, at, _NULL, 0, 4)
    if not rich or form == _DOUBLE:
        return put_double(out, at, bits, False)
    if form == _GO_DOUBLE:
        return put_go_double(out, at, bits, False)
    out[at] = _QUOTE
    at = put_go_double(out, at + 1, bits, True)
    out[at] = _QUOTE
    return at + 1


@inline
def _put_bytes(out: U8, at: int, form: int, data: U8, first: int, last: int, printable: U8, rich: bool) -> int:
    if form == _ESCAPED:
        return put_quoted(out, at, data, first, last)
    if form == _RAW:
        return put_raw(out, at, data, first, last)
    if not rich or form in (_QUOTED, _BASE64):
        out[at] = _QUOTE
        if form == _QUOTED:
            at = put_raw(out, at + 1, data, first, last)
        else:
            at = put_base64(out, at + 1, data, first, last)
        out[at] = _QUOTE
        return at + 1
    return _put_go(out, at, form, data, first, last, printable)


@inline
def _put_go(out: U8, at: int, form: int, data: U8, first: int, last: int, printable: U8) -> int:
    if form in (_GO_ESCAPED, _HTML_CODED):
        return put_escaped(out, at, data, first, last, form == _HTML_CODED)
    if form == _GO_QUOTED:
        return put_go_quoted(out, at, data, first, last, printable)
    if form == _LATIN1:
        return put_latin1(out, at, data, first, last)
    return put_json_document(out, at, data, first, last, form == _HTML_DOCUMENT)
