"""docs/style.md: packages and pages that have been rewritten stay in plain technical English."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.words import Finding, in_module, in_page, python_files

ROOT = Path(__file__).parents[3]
# Not rewritten yet. A page leaves this list with the commit that rewrites it, and does not come back.
PAGES_TO_DO = frozenset(
    {
        *(f"docs/{name}.md" for name in ("api", "architecture", "benchmarks", "formats")),
        *(f"docs/{name}.md" for name in ("glossary", "invariants", "mutants", "scheduling")),
        "docs/style.md",  # it quotes what it refuses
    }
)


def modules() -> list[Path]:
    return python_files(ROOT, ("services", "shared", "simulator", "tools"))


def pages() -> list[Path]:
    return [
        path
        for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
        if str(path.relative_to(ROOT)) not in PAGES_TO_DO and "adr" not in path.parts
    ]


def test_modules_are_in_plain_technical_english() -> None:
    found = [one for path in modules() for one in in_module(str(path.relative_to(ROOT)), path.read_text())]
    assert not found, "\n".join(map(str, found))


def test_pages_are_in_plain_technical_english() -> None:
    found = [one for path in pages() for one in in_page(str(path.relative_to(ROOT)), path.read_text())]
    assert not found, "\n".join(map(str, found))


def test_what_is_on_the_list_is_there_and_needs_to_be() -> None:
    for page in sorted(PAGES_TO_DO):
        assert any(True for _ in in_page(page, (ROOT / page).read_text())), page


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("# It is told to whoever asks.\n", ["told", "whoever"]),
        ('"""Likewise."""\n', ["Likewise."]),
        ('raise ValueError("there is nobody here")\n', ["nobody"]),
        ("told_ts = 1  # `told_ts` is what a status shows\n", []),
        ('x = {"told": 1}\n', []),
    ],
)
def test_the_check_finds_idioms_and_leaves_names_alone(source: str, words: list[str]) -> None:
    found: list[Finding] = list(in_module("m.py", source))
    assert [one.words for one in found] == words
