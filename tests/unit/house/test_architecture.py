"""The rules of the house that no tool checks: sizes, nothing left for later. `make lint` runs the tools."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("shared", "services", "simulator", "tools", "benchmarks", "client")
SOURCES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py"))
TESTS = sorted((ROOT / "tests").glob("**/*.py"))
CODE_LINES_MAX = 300
MODULES_MAX = 15  # of a package, without __init__ and __main__
_BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines that hold code: no comments, no blank lines, no docstrings."""
    lines: set[int] = set()
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        docstring = token.type == tokenize.STRING and previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type not in _BLANK and not docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            previous = token.type
    return len(lines)


def test_no_file_is_too_long() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}
    long = {name: code_lines(text) for name, text in texts.items() if text.count("\n") > CODE_LINES_MAX}
    assert {name: lines for name, lines in long.items() if lines > CODE_LINES_MAX} == {}


def test_no_package_is_too_large() -> None:
    product = [path for path in SOURCES if not path.is_relative_to(ROOT / "benchmarks")]
    modules = Counter(str(path.parent.relative_to(ROOT)) for path in product if not path.name.startswith("__"))
    assert {package: count for package, count in modules.items() if count > MODULES_MAX} == {}


def test_code_lines_leaves_out_comments_blanks_and_docstrings() -> None:
    text = '"""Doc\nstring."""\n\nx = 1  # why\n# note\ndef f():\n    """Doc."""\n    return """a\nb"""\n'
    assert code_lines(text) == 4


def test_nothing_is_left_for_later() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|\bpragma: no cover\b")
    own = Path(__file__)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*SOURCES, *TESTS]
        if path != own
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if unfinished.search(line)
    ]
    assert found == []


def test_test_files_have_unique_names() -> None:
    """Without packages in tests/, pytest knows a test file by its name alone."""
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
