"""Quotes identifiers and string literals for MySQL's SQL."""

from __future__ import annotations

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\x00": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"})


def quoted_name(name: str) -> str:
    """Quote an identifier with backticks. It may contain any characters."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """Quote a text as a string literal. The session must not have the SQL mode NO_BACKSLASH_ESCAPES."""
    return "'" + text.translate(_ESCAPES) + "'"
