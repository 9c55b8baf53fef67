"""Quotes identifiers and string literals for MySQL's SQL."""

from __future__ import annotations

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\x00": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})


def quoted_name(name: str) -> str:
    """The identifier in backticks. Any characters are allowed."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """The text as a string literal. It needs a session without NO_BACKSLASH_ESCAPES."""
    return "'" + text.translate(_ESCAPES) + "'"
