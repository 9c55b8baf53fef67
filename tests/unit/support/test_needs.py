"""What a machine lacks for a run on containers is told in a line each, with the way to get it."""

from __future__ import annotations

import pytest

from support.needs import main, missing


def test_a_machine_that_has_everything_lacks_nothing() -> None:
    for run in ("compose", "kubernetes"):
        assert missing(run, lambda: True, lambda name: f"/usr/bin/{name}", lambda: 0) == []


def test_each_thing_that_is_missing_is_a_line_that_says_how_to_get_it() -> None:
    engine, user, programs, go = missing("kubernetes", lambda: False, lambda name: None, lambda: 1000)
    assert "dockerd" in engine
    assert user.startswith("root")
    assert "ctr" in programs
    assert "apt-get install" in programs
    assert go.startswith("go on PATH")
    assert all("\n" not in line for line in (engine, user, programs, go))


def test_compose_needs_no_kubernetes() -> None:
    assert missing("compose", lambda: True, lambda name: None, lambda: 0) == []


def test_cuts_need_root_and_network_namespaces_and_no_engine() -> None:
    user, programs = missing("cuts", lambda: False, lambda name: None, lambda: 1000)
    assert user.startswith("root")
    assert programs == "ip on PATH: apt-get install iproute2"


@pytest.mark.parametrize("arguments", [[], ["compose", "kubernetes"], ["swarm"]])
def test_another_run_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage" in capsys.readouterr().err
