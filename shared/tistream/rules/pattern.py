"""The pattern in a rule: it matches names of databases, tables or columns. Pure.

A pattern has one of three forms. Bare text (`[0-9A-Za-z$_]` and everything from U+0080 on) may have the wildcards `*`,
`?`, `[a-z]` and `[!a-z]`, and `\\c` for the special character c. Text in `"…"` or backquotes has no wildcards, and
doubles the quote inside. A regular expression `/…/` matches any part of a name.

Wildcards and regular expressions are matched by RE2, whose time is linear in the length of the name, and whose dialect
is that of Go. No pattern can make a match slow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.arrays import Bools
from tistream.errors import InvalidRequest
from tistream.schema.visible import fold

_REGEX = re.compile(r"/(?:\\.|[^/\\])+/", re.DOTALL)
_QUOTED = {'"': re.compile(r'"(?:""|[^"])+"'), "`": re.compile(r"`(?:``|[^`])+`")}
_RANGE = re.compile(r"\[!?(?:\\[^0-9a-zA-Z]|[^\\\]])+\]")
_RUN = re.compile(r"[0-9A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff]+")
_WILDCARDS = {"*": ".*", "?": "."}
_EVERYTHING = "(?s)^.*$"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Matches names that equal `literal`, or names that match `regex`. One of the two is None. `folded`: without regard
    to case."""

    literal: str | None
    regex: str | None
    folded: bool  # compared without regard to case

    @property
    def everything(self) -> bool:
        """Whether the pattern is exactly `*`."""
        return self.regex == _EVERYTHING

    def matches(self, names: Sequence[str]) -> Bools:
        """For each name, whether it matches."""
        if self.everything:
            return np.ones(len(names), dtype=bool)
        if self.literal is not None:
            shown = [fold(name) for name in names] if self.folded else names
            return np.array([name == self.literal for name in shown], dtype=bool)
        return _search(self.regex or "", names, ignore_case=self.folded)


def _search(regex: str, names: Sequence[str], *, ignore_case: bool) -> Bools:
    found = pc.match_substring_regex(pa.array(names, pa.large_string()), regex, ignore_case=ignore_case)
    out: Bools = found.to_numpy(zero_copy_only=False)
    return out.astype(bool)


def compiled(regex: str, *, folded: bool) -> Pattern:
    """Compile the pattern of a regular expression. `folded`: names match without regard to case. Raises InvalidRequest
    if the expression is invalid or too large."""
    try:
        _search(regex, [""], ignore_case=folded)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise InvalidRequest(f"regular expression {regex!r}: {reason}; its syntax is that of Go and RE2") from None
    except UnicodeEncodeError:
        raise InvalidRequest(f"regular expression {regex!r} is no text: it cannot be encoded as UTF-8") from None
    return Pattern(None, regex, folded)


def parse_part(text: str, *, folded: bool, dotted: bool = False) -> tuple[Pattern, str]:
    """Parse the pattern at the beginning of a text. Returns the pattern and the rest of the text. `folded`: names match
    without regard to case. `dotted`: bare text ends at a dot. Raises InvalidRequest."""
    if not text:
        raise InvalidRequest("a pattern is missing: a rule is database.table, for example shop.*")
    if text[0] == "/":
        found = _REGEX.match(text)
        if found is None:
            raise InvalidRequest(f"{text!r}: the regular expression does not end: close it with `/`")
        return compiled(found[0][1:-1].replace(r"\/", "/"), folded=folded), text[found.end() :]
    quote = text[0]
    if quote in _QUOTED:
        found = _QUOTED[quote].match(text)
        if found is None:
            raise InvalidRequest(f"{text!r}: the quoted name is empty or does not end: close it with {quote}")
        return _literal(found[0][1:-1].replace(2 * quote, quote), folded), text[found.end() :]
    return _bare(text, folded, dotted)


def _literal(name: str, folded: bool) -> Pattern:
    return Pattern(fold(name) if folded else name, None, folded)


def _bare(text: str, folded: bool, dotted: bool) -> tuple[Pattern, str]:
    literal: list[str] = []
    regex: list[str] = []
    wild = False
    at = 0
    while at < len(text) and not (dotted and text[at] == "."):
        length, name, pattern = _step(text, at)
        wild = wild or name is None
        literal.append(name or "")
        regex.append(pattern)
        at += length
    if at == 0:
        raise InvalidRequest(f"{text!r} begins without a name: write `*` for any")
    if wild:
        return compiled(f"(?s)^{''.join(regex)}$", folded=folded), text[at:]
    return _literal("".join(literal), folded), text[at:]


def _step(text: str, at: int) -> tuple[int, str | None, str]:
    """Parse the element of a bare pattern that begins at `at`. Returns (its length in the text, the character that it
    stands for or None if it is a wildcard, its regular expression). Raises InvalidRequest."""
    char = text[at]
    if char in _WILDCARDS:
        return 1, None, _WILDCARDS[char]
    if char == "[":
        found = _RANGE.match(text, at)
        if found is None:
            raise InvalidRequest(f"{text!r}: the range at {text[at:]!r} is empty or does not end with `]`")
        inside = found[0]
        return len(inside), None, f"[^{inside[2:]}" if inside[1] == "!" else inside
    if char == "\\":
        escaped = text[at + 1 : at + 2]
        if not escaped or (escaped.isascii() and escaped.isalnum()):
            raise InvalidRequest(
                f"{text!r}: `\\` stands before a special character, not before a letter, a digit or the end"
            )
        return 2, escaped, f"\\{escaped}" if escaped.isascii() else escaped
    if char == "$":
        return 1, char, r"\$"
    run = _RUN.match(text, at)
    if run is None:
        raise InvalidRequest(f"{text!r}: the special character {char!r} must be escaped with `\\` or quoted")
    return len(run[0]), run[0], run[0]
