"""Writes strings as Go's JSON writers do, for single messages and for the constant parts of rows. Pure."""

from __future__ import annotations

_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CODED = {code: f"\\u{code:04x}" for code in (*range(0x20), 0x2028, 0x2029)}
_GO = str.maketrans({**{chr(code): text for code, text in _CODED.items()}, **_NAMED})
_HTML = {**_GO, **{ord(char): f"\\u{ord(char):04x}" for char in "<>&"}}


def go_quoted(text: str) -> str:
    """`text` as a JSON string with its quotes, as open-protocol and debezium print it. LF, CR and tab have their short
    escapes; other control characters, U+2028 and U+2029 are escaped as `\\u0008`. `<`, `>` and `&` are not escaped."""
    return f'"{text.translate(_GO)}"'


def html_quoted(text: str) -> str:
    """`text` as a JSON string, as canal-json prints it: `<`, `>` and `&` are escaped too."""
    return f'"{text.translate(_HTML)}"'
