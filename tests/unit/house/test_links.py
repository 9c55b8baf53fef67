"""Every link between pages, and every mention of a page in code, resolves: the file and the heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pages import anchors, links, problem

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "client" / "README.md", *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("shared", "services", "simulator", "tools", "benchmarks", "scripts", "deploy", "tests", "client")
FILES = sorted(
    [
        *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")),
        *(path for path in ROOT.iterdir() if path.suffix in (".yml", ".toml", ".example") or path.name == "Makefile"),
    ]
)
SKIPPED = ("tests/data", "tests/unit/house")  # recordings, and the tests of pages, which name pages that do not exist
_MENTION = re.compile(r"(?<![\w./-])(docs/[\w./-]+\.md(?:#[\w-]+)?)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_resolves(page: Path) -> None:
    assert [why for target in links(page.read_text()) if (why := problem(ROOT, page, target))] == []


def test_every_page_that_code_mentions_exists() -> None:
    mentions = [
        (str(path.relative_to(ROOT)), target)
        for path in FILES
        if path.is_file() and not str(path.relative_to(ROOT)).startswith(SKIPPED)
        for target in _MENTION.findall(_text(path))
    ]
    assert len(mentions) > 30
    assert [(path, why) for path, target in mentions if (why := problem(ROOT, ROOT / "README.md", target))] == []


def test_a_link_without_its_file_or_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Some `code`, and more\n\n## Again\n\n## Again\n\n```\n# no heading\n```\n")
    assert anchors(page.read_text()) == {"some-code-and-more", "again", "again-1"}
    assert problem(tmp_path, page, "page.md#again-1") is None
    assert problem(tmp_path, page, "#again") is None
    assert problem(tmp_path, page, "page.md#no-heading") == "page.md#no-heading: no such heading"
    assert problem(tmp_path, page, "other.md") == "other.md: no such file"
    assert list(links("[a](page.md#x) ![b](c.png) [d](https://example.com)\n```\n[e](f)\n```\n")) == [
        "page.md#x",
        "c.png",
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:  # a picture or a Parquet file
        return ""
