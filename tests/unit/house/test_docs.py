"""The documents name files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tistream_meta.decide.task_phases import TRANSITIONS

ROOT = Path(__file__).parents[3]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("shared", "services", "simulator", "tools", "benchmarks", "client")
CODE = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("document", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_modules_and_tests_exist(document: Path) -> None:
    quoted = re.findall(r"`([^`\n]+)`", document.read_text())
    modules = {name for name in quoted if re.fullmatch(r"[\w/]+\.py", name)}
    known = {str(path.relative_to(ROOT)) for path in [*CODE, *(ROOT / "tests").rglob("*.py")]}
    missing = {name for name in modules if not any(path == name or path.endswith("/" + name) for path in known)}
    assert missing == set()
    assert {name for name in quoted if name.startswith("test_")} - TESTS == set()


SECTION = re.compile(
    r"(?<![\w/-])((?:design|upstream)(?:-[a-z]+)*|log-backup|[a-z][a-z-]*(?=\.md))(?:\.md\)?)?\)?\s+#?\s*"
    r"(\d+(?:\.\d+)*(?:(?:,|\s+and|\s+to)\s+\d+(?:\.\d+)*)*)(?![\w.]*\w)"
)
HEADING = re.compile(r"docs/([\w/-]+\.md),\s+(?:#\s*)?\"([^\"]+)\"")
PAGE = re.compile(r"(?<![\w/])docs/((?:[\w-]+/)*(?:[\w-]+\.md|\d{4}(?:-[a-z-]+)?))")
CITING = [path for path in [*CODE, *DOCS, *(ROOT / "tests").rglob("*.py")] if path != Path(__file__)]


def unresolved(text: str) -> set[str]:
    """The citations of a text that lead nowhere: `design 3.1`, `docs/agent.md, "States"`, `docs/adr/0007`."""
    found = set()
    for page, numbers in SECTION.findall(text):
        cited = ROOT / "docs" / f"{page}.md"
        there = re.findall(r"^##+ (\d+(?:\.\d+)*)\.? ", cited.read_text(), re.MULTILINE) if cited.exists() else []
        found |= {f"{page} {number}" for number in re.findall(r"\d+(?:\.\d+)*", numbers) if number not in there}
    for page, heading in HEADING.findall(text):
        cited = ROOT / "docs" / page
        there = re.findall(r"^#+ (.+)$", cited.read_text(), re.MULTILINE) if cited.exists() else []
        found |= {f'{page}, "{heading}"'} - {f'{page}, "{one}"' for one in there}
    for page in PAGE.findall(text):
        number = re.match(r"adr/(\d{4})", page)
        if not (list((ROOT / "docs" / "adr").glob(f"{number[1]}-*.md")) if number else (ROOT / "docs" / page).exists()):
            found.add(f"docs/{page}")
    return found


def test_every_citation_leads_to_a_heading_of_a_page() -> None:
    cited = {str(path.relative_to(ROOT)): unresolved(path.read_text()) for path in CITING}
    assert {path: lost for path, lost in cited.items() if lost} == {}


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("(design.md 4 and 9.9)", {"design 9.9"}),
        ("(upstream-formats\n    4.1, 4.9)", {"upstream-formats 4.9"}),
        ("[design.md](design.md) 3", set()),
        ("design-feeds.md 9.3", {"design-feeds 9.3"}),
        ("upstream-doors 5", {"upstream-doors 5"}),
        ("changefeeds.md 11", {"changefeeds 11"}),
        ('docs/agent.md, "States" and docs/agent.md, "Doors"', {'agent.md, "Doors"'}),
        ("docs/adr/0007, docs/adr/9999, docs/none.md", {"docs/adr/9999", "docs/none.md"}),
        ("a design of 3 parts, log-backup-7, upstream 7.5.1a", set()),
    ],
)
def test_a_citation_without_its_page_or_heading_is_found(text: str, lost: set[str]) -> None:
    assert unresolved(text) == lost


SERVICES = sorted(f"services/{path.name}" for path in (ROOT / "services").iterdir() if path.is_dir())
NAMED = re.compile(r"(?<![\w/.%-])((?:\w+/)*\w+\.py)\b")


@pytest.mark.parametrize("folder", ["shared", "simulator", "tools", "client", *SERVICES])
def test_modules_that_code_names_exist(folder: str) -> None:
    """A module is named by its file, from its own service, the library or the tests."""
    own = (ROOT / folder).rglob("*.py")
    known = [str(path) for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / "shared").rglob("*.py")]]
    known += [str(path) for path in (ROOT / "tests").rglob("*.py")]
    named = {(str(path.relative_to(ROOT)), name) for path in own for name in NAMED.findall(path.read_text())}
    assert {one for one in named if not any(path.endswith("/" + one[1]) for path in known)} == set()


def test_the_diagram_of_a_tasks_phases_is_that_of_the_code() -> None:
    drawn = re.search(
        r"```mermaid\nstateDiagram-v2\n(.*?)```", (ROOT / "docs" / "scheduling.md").read_text(), re.DOTALL
    )
    assert drawn is not None
    assert drawn[1].splitlines() == [
        f"  {phase.value} --> {after.value} : {step.value}"
        for phase, steps in TRANSITIONS.items()
        for step, after in steps.items()
        if after is not phase
    ]
