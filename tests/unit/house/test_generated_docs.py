"""Generated pages are what their script makes of the code, and say so in their first line."""

from __future__ import annotations

import runpy
from pathlib import Path

from support.pages import GENERATED

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "generated-docs"


def test_generated_pages_are_up_to_date() -> None:
    for path, text in runpy.run_path(str(SCRIPT))["pages"]().items():
        assert (ROOT / path).read_text() == text, f"run scripts/generated-docs: {path} is not up to date"


def test_the_marker_of_a_generated_page_names_what_made_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        first = page.read_text().partition("\n")[0]
        if not first.startswith("<!--"):
            continue
        found = GENERATED.fullmatch(first)
        assert found is not None, f"{page}: {first}"
        kind, _, target = found[1].rpartition(" ")
        assert (ROOT / target).exists() if not kind else kind == "make" and f"\n{target}:" in makefile, (
            f"{page}: {first}"
        )
