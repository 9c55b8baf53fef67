"""The documents name files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tistream_meta.decide.task_phases import TRANSITIONS

ROOT = Path(__file__).parents[3]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("shared", "services", "simulator", "tools", "benchmarks")
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


CITED = ("design", "upstream-formats")
CITATION = re.compile(r"\b(design|upstream-formats)(?:\.md)?\W? (\d+(?:\.\d+)*(?:(?:, | and )\d+(?:\.\d+)*)*)")


def test_every_section_that_is_cited_is_there() -> None:
    sections = {
        name: set(re.findall(r"^##+ (\d+(?:\.\d+)*)\.? ", (ROOT / "docs" / f"{name}.md").read_text(), re.MULTILINE))
        for name in CITED
    }
    cited = [
        (str(path.relative_to(ROOT)), page, section)
        for path in [*CODE, *DOCS, *(ROOT / "tests").rglob("*.py")]
        for page, numbers in CITATION.findall(path.read_text())
        for section in re.findall(r"\d+(?:\.\d+)*", numbers)
    ]
    assert len(cited) > 50
    assert [one for one in cited if one[2] not in sections[one[1]]] == []


SERVICES = sorted(f"services/{path.name}" for path in (ROOT / "services").iterdir() if path.is_dir())
NAMED = re.compile(r"(?<![\w/.%-])((?:\w+/)*\w+\.py)\b")


@pytest.mark.parametrize("folder", ["shared", "simulator", "tools", *SERVICES])
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
