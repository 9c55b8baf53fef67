"""What `make soak` runs, and in which order."""

from __future__ import annotations

from support.soak import OTHER_PARTS, PARTS, ROOT


def test_all_tests_but_those_of_containers_run_in_the_order_of_a_seed() -> None:
    commands = {part.name: part.with_seed(7) for part in PARTS}
    tests = {name for name, command in commands.items() if "pytest" in command}
    assert tests == {"unit", "service", "simulation", "e2e", "soak", "compose", "kubernetes"}
    seeded = {name for name, command in commands.items() if {"randomly", "--randomly-seed=7"} <= {*command}}
    assert seeded == tests - {"compose", "kubernetes"}
    assert all("--hypothesis-seed=7" in commands[name] for name in seeded)


def test_what_the_part_soak_leaves_out_another_part_runs() -> None:
    others = {word for part in PARTS if part.name != "soak" for word in part.command}
    assert {f"tests/soak/{name}" for name in OTHER_PARTS} <= others
    assert all((ROOT / "tests" / "soak" / name).exists() for name in OTHER_PARTS)
