"""How many of each service `tistream up` starts, and what they are called."""

from __future__ import annotations

import pytest

from tistream_cli.platform import up
from tistream_cli.platform.up import ALONE, SERVICES, ConnectOption, ProcessCounts


def test_one_of_each_bears_the_services_name() -> None:
    assert ProcessCounts(agent=1).children() == {service: service for service in SERVICES}


def test_without_a_cluster_to_connect_no_agent_runs() -> None:
    assert "agent" not in ProcessCounts().children()


def test_a_cluster_is_connected_by_the_command_that_a_user_would_call() -> None:
    command = ConnectOption("pd:2379", "7", "shop").command("file:///data/objects", "http://127.0.0.1:8000")
    assert " ".join(command[3:]) == (
        "connect --pd pd:2379 --objects file:///data/objects --url http://127.0.0.1:8000 --cluster 7 --tenant shop "
        "--assign"
    )


def test_the_others_bear_a_number_too() -> None:
    children = ProcessCounts(meta=2, dispatcher=3, api=2).children()
    assert [name for name, service in children.items() if service == "dispatcher"] == [
        "dispatcher",
        "dispatcher-2",
        "dispatcher-3",
    ]
    assert len(children) == 2 + 1 + 1 + 3 + 1 + 1 + 2


def test_the_only_process_of_its_kind_sends_few_heartbeats_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ALONE:
        monkeypatch.delenv(f"TISTREAM_META__{name}", raising=False)
    assert up.timings(ProcessCounts(agent=1).children()) == ALONE
    assert up.timings(ProcessCounts(api=2).children()) == {}
    monkeypatch.setenv("TISTREAM_META__LOST_MS", "9000")
    assert "LOST_MS" not in up.timings(ProcessCounts().children())
