"""The vocabulary of docs/style.md: idioms that are refused, with what to write instead."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REFUSED = {
    r"told|tells?\b": "report, return, record, show, say which",
    r"whoever|whomever|\bwhom\b": "name the caller, process or role",
    r"who asks|who calls it|who reads it": "the caller, the reader",
    r"\b(?:nobody|somebody|anybody)\b": "no process, another dispatcher, any caller",
    r"(?-i:\bis none\b|\bare none\b)": "does not exist, is invalid, is empty",
    r"\bso many\b": "name the number",
    r"\bhears?\b|\bheard\b": "receives a heartbeat, receives, learns",
    r"\bbefalls?\b|\bbeneath\b|\bwhereof\b|\bthereof\b": "happens to, below, of which",
    r"\bnone of (?:its|their|our) (?:business|concern)\b": "not responsible for it",
    r"\blet in\b|\blets? (?:\w+ )?in\b": "accepts, authenticates",
}
# Refused in packages whose docstrings were all read and rewritten (REREAD), in addition to the list above.
REFUSED_IN_REREAD = {
    r"\braises as\b": "raises the errors of",
    r"\b(?:goes|go|going|went) on\b": "continues",
    r"\bof no use\b|\blikewise\b|\bas it does\b": "cannot be used, in the same way, like",
    r"\bhand(?:s|ed)? on\b|\bway out\b": "route, return, what to do",
    r"\bwhat there is\b|\bwhat (?:came|comes) of\b": "name the thing, the result",
    r"\b(?:is|are) to be\b": "must be, will be",
    r"\bmeanwhile\b|\bhow far\b": "in the meantime, during the read; progress, up to which ts",
}
REREAD = ("shared", "tools", "services/dispatcher", "services/schema_registry", "services/sorter")
COLUMNS = 120
LONELY = re.compile(
    r"^(?:Likewise|Of (?:these|those|that|it)|And that too|It is|By hour|The same|These have been)[^.]{0,24}\.?$"
)
_IDIOMS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in REFUSED.items()]
_REREAD_IDIOMS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in REFUSED_IN_REREAD.items()]
_CODE = re.compile(r"`[^`]*`|\{[^}]*\}|\b\w*_\w*\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1; `words` as they stand there."""

    path: str
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.words}": {self.instead}'


def in_text(path: str, text: str, first: int = 1) -> Iterator[Finding]:
    """Idioms of some lines of prose. What is code (in backquotes, or with an underscore) is left out."""
    idioms = _IDIOMS + (_REREAD_IDIOMS if path.startswith(tuple(f"{folder}/" for folder in REREAD)) else [])
    for number, line in enumerate(text.splitlines(), first):
        prose = _CODE.sub(" ", line)
        for idiom, instead in idioms:
            for found in idiom.finditer(prose):
                yield Finding(path, number, found[0], instead)


def in_module(path: str, source: str) -> Iterator[Finding]:
    """Idioms of the comments, docstrings and texts of a Python module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_text = token.type == tokenize.STRING and (" " in token.string or token.string.startswith(chr(34) * 3))
        if token.type == tokenize.COMMENT or is_text:
            yield from in_text(path, token.string, token.start[0])
        if is_text and LONELY.match(token.string.strip("rbfu\"'")) and token.line.strip().startswith('"""'):
            yield Finding(path, token.start[0], token.string.strip('"'), "a sentence with a subject and a verb")


def in_page(path: str, page: str) -> Iterator[Finding]:
    """Idioms of a Markdown page, but for its blocks of code."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            yield from in_text(path, line, number)


def too_long(path: str, page: str) -> Iterator[str]:
    """Lines of prose of a Markdown page that could be broken before COLUMNS, as `path:line: columns`."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        breakable = not fenced and not line.startswith(("|", "    ", "#", "<!--"))
        if breakable and len(line) > COLUMNS and " " in line.strip()[:COLUMNS]:
            yield f"{path}:{number}: {len(line)} columns"


def python_files(root: Path, folders: tuple[str, ...]) -> list[Path]:
    """Every module below the folders, in order."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
