"""Writes strings as Go's JSON writers do, for single messages and for the constant parts of rows. Pure."""

from __future__ import annotations

_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_CODED = {code: f"\\u{code:04x}" for code in range(0x20)}
_GO = str.maketrans({**{chr(code): text for code, text in _CODED.items()}, **_NAMED})
_HTML = {**_GO, **{ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}}


def go_quoted(text: str) -> str:
    """`text` as a JSON string with its quotes, as open-protocol and debezium print it. LF, CR and tab have their short
    escapes, other control characters are escaped as `\\u0008`. `<`, `>`, `&`, U+2028 and U+2029 are not escaped."""
    return f'"{text.translate(_GO)}"'


def html_quoted(text: str) -> str:
    """`text` as a JSON string, as canal-json prints it: `<`, `>`, `&`, U+2028 and U+2029 are escaped too."""
    return f'"{text.translate(_HTML)}"'
