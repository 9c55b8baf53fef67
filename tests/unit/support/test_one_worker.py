"""Tests that share a platform are of one group, whichever files they are in."""

from __future__ import annotations

import ast

from support.one_worker import ACCESS, BROKER, DAMAGES, FOUR_RANGES, GROUPS, GUARDED, LONGEST, MORTAL, READS, group_of
from support.tiers import TESTS

# Fixtures of tests/e2e/conftest.py, and the groups of their users.
SHARED = {
    "up": {FOUR_RANGES, DAMAGES},
    "whole": {FOUR_RANGES, DAMAGES},
    "mortal": {MORTAL},
    "guarded": {GUARDED},
}


def shared_by(text: str) -> set[frozenset[str]]:
    """The groups of each platform that a file asks for by a fixture that it does not define itself."""
    asked = asked_by(text)
    return {frozenset(groups) for name, groups in SHARED.items() if name in asked}


def asked_by(text: str) -> set[str]:
    """The fixtures that a file asks for and does not define itself."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    asked = {argument.arg for function in functions for argument in function.args.args if _is_fixture_user(function)}
    return asked - {function.name for function in functions}


def _is_fixture_user(function: ast.FunctionDef) -> bool:
    """Tests and fixtures; what else takes a platform is handed one."""
    return function.name.startswith("test_") or any("fixture" in ast.unparse(one) for one in function.decorator_list)


def test_each_file_of_a_shared_platform_is_in_its_group() -> None:
    found = {}
    for path in sorted((TESTS / "e2e").glob("test_*.py")):
        if groups := shared_by(path.read_text()):
            found[path.name] = groups
    assert [name for name, platforms in found.items() if len(platforms) > 1] == []
    groups = {name: group_of(f"tests/e2e/{name}::test_it") for name in found}
    assert [name for name, group in groups.items() if group not in next(iter(found[name]))] == []
    assert set(groups.values()) == set().union(*SHARED.values())


def test_each_service_test_of_a_shared_platform_is_in_its_group() -> None:
    asked = {path.stem: asked_by(path.read_text()) for path in (TESTS / "service").rglob("test_*.py")}
    # Of tests/service/conftest.py, and what is made of it.
    for group, shared in (
        (READS, {"everything", "up", "loaded", "acme"}),
        (ACCESS, {"guarded_api", "spent"}),
        (BROKER, {"broker", "secured_broker"}),
    ):
        users = {stem for stem, fixtures in asked.items() if fixtures & shared}
        assert users == {stem for stem, of in GROUPS.items() if of == group}


def test_a_set_goes_to_the_platform_that_has_its_ranges() -> None:
    sets = "tests/e2e/test_e2e_golden_sets.py::test_small_pages"
    assert group_of(f"{sets}[4-ranges-everything]") == FOUR_RANGES
    assert group_of(f"{sets}[16-ranges-everything]") == MORTAL
    assert group_of(f"{sets}[64-ranges-large]") not in set().union(*SHARED.values())


def test_any_other_file_is_a_group() -> None:
    one, other = "tests/unit/model/test_span.py", "tests/unit/model/test_ts.py"
    assert group_of(f"{one}::test_a") == group_of(f"{one}::test_b[1]") != group_of(f"{other}::test_a")


def test_what_begins_first_is_there() -> None:
    files = set(LONGEST) - set(GROUPS.values())
    assert {name for name in files if not (TESTS.parent / name).is_file()} == set()
    assert len(set(LONGEST)) == len(LONGEST)
