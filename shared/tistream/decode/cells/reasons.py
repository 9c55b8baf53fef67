"""The reasons why a row cannot be decoded: codes that kernels write, and the text of each."""

from __future__ import annotations

OK = 0
CUT_OFF = 1
BAD_VERSION = 2
BAD_IDS = 3
BAD_OFFSETS = 4
TRAILING = 5
BAD_DATUM = 6
BAD_KEY = 7
BAD_HANDLE = 8
BAD_INTEGER = 9
BAD_FLOAT = 10
BAD_DECIMAL = 11
BAD_TIME = 12
BAD_SET = 13
BAD_JSON = 14
BAD_VECTOR = 15
BAD_DEFAULT = 16

_TEXTS = {
    CUT_OFF: "the row value is truncated",
    BAD_VERSION: "the row value has an unknown format",
    BAD_IDS: "the column ids of the row value are not ascending",
    BAD_OFFSETS: "the value offsets of the row value are invalid",
    TRAILING: "bytes follow the end of the row value",
    BAD_DATUM: "the row value contains an invalid datum",
    BAD_KEY: "the key is not a record key of this kind of table",
    BAD_HANDLE: "the handle in the key does not fit the primary key",
    BAD_INTEGER: "not an integer",
    BAD_FLOAT: "not a floating-point number",
    BAD_DECIMAL: "not a decimal",
    BAD_TIME: "not a date or time",
    BAD_SET: "not a set of the column's elements",
    BAD_JSON: "not a binary JSON document",
    BAD_VECTOR: "not a vector",
    BAD_DEFAULT: "the origin default does not fit the column's type",
}


def reason_text(code: int, column: str | None) -> str:
    """The text of a reason code. `column` is the name of the column, or None if the reason concerns the whole row."""
    return _TEXTS[code] if column is None else f"column {column}: {_TEXTS[code]}"
