"""Generated pages are what their script makes of the code, and say so in their first line."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from support.pages import GENERATED

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "generated-docs"


def test_generated_pages_are_up_to_date() -> None:
    for path, text in runpy.run_path(str(SCRIPT))["pages"]().items():
        assert (ROOT / path).read_text() == text, f"run scripts/generated-docs: {path} is not up to date"


def test_the_first_line_of_a_generated_page_names_a_command_that_exists() -> None:
    """`make TARGET`, a script of the repository, or `python -m MODULE`."""
    generated = [path for path in (ROOT / "docs").rglob("*.md") if path.read_text().startswith(GENERATED)]
    assert generated
    for page in generated:
        command = re.search(r"`([^`]+)`", page.read_text().partition("\n")[0])
        assert command is not None, page
        assert _exists(*command[1].split()), page


def _exists(*words: str) -> bool:
    if "make" in words:
        return re.search(rf"^{re.escape(words[-1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if "-m" in words:
        return any(ROOT.glob(f"*/{words[-1].replace('.', '/')}.py"))
    return (ROOT / words[0]).is_file()


def test_a_command_that_does_not_exist_is_noticed() -> None:
    there = (("make", "chaos"), ("scripts/chaos",), ("python", "-m", "support.words"))
    missing = (("make", "nothing"), ("scripts/nothing",), ("python", "-m", "support.nothing"))
    assert [_exists(*words) for words in (*there, *missing)] == [True, True, True, False, False, False]
