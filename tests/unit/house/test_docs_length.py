"""docs/ stays short: what is written by hand has a budget of words, and generated pages say what made them."""

from __future__ import annotations

from pathlib import Path

from support.pages import GENERATED, words

ROOT = Path(__file__).parents[3]
WORDS_MAX = 35_000


def test_pages_written_by_hand_are_within_the_budget() -> None:
    counted = {
        str(path.relative_to(ROOT)): words(text)
        for path in (ROOT / "docs").rglob("*.md")
        if not (text := path.read_text()).startswith(GENERATED)
    }
    longest = ", ".join(f"{path}: {count}" for path, count in sorted(counted.items(), key=lambda one: -one[1])[:10])
    assert sum(counted.values()) <= WORDS_MAX, f"{sum(counted.values())} words; the longest are {longest}"


def test_words_are_counted_without_code_and_rules_of_tables() -> None:
    assert words("# Two words\n\n| a | b |\n|---|---|\n\n```\nnot counted\n```\n\n- `one code` …\n") == 6
