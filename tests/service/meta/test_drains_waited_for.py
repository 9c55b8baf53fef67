"""`tistream node drain --wait`: what a pod asks for before it is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.http_world import SorterProcess, World, never_superseded, running
from support.tiny_tenant import TinyTenant
from support.waiting import PATIENCE_S, eventually
from tistream.storage import layout
from tistream.wire.bulk.changefeeds import ChangefeedInfo, NewChangefeed, WorkerBeat
from tistream.wire.clients.membership import Membership
from tistream_cli.app import app
from tistream_cli.commands.operate import drain_node, left_on
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError

TINY = TinyTenant()


def begin(world: World) -> None:
    world.objects.put(layout.schema_snap(TINY.tenant), b'{"version":1,"snapshot_ts":100,"databases":[]}')
    world.client.create_tenant(TINY.tenant.cluster_id, TINY.tenant.tenant_id)
    eventually(lambda: [task.phase for task in world.client.tasks().tasks] == ["running"] * 4)


def test_it_comes_back_once_others_have_everything(tmp_path: Path) -> None:
    with running(tmp_path, ranges=4) as world:
        other = SorterProcess(world, "sorter-2").joined()
        begin(world)
        command = ["node", "drain", "sorter-1", "--wait", str(int(PATIENCE_S))]  # as a pod's preStop hook has it
        answer = CliRunner().invoke(app, command, env={"TISTREAM_URL": world.meta.url})  # a meta server answers as well
        assert answer.exit_code == 0, answer.output
        assert {task.sorter_node for task in world.client.tasks().tasks} == {"sorter-2"}
        assert answer.output.splitlines()[-1] == "node sorter-1 has nothing left"
        other.stop()


def test_where_nobody_can_take_over_nothing_is_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, ranges=4) as world:
        begin(world)
        with pytest.raises(CliError, match="sorter-1: 4 tasks and 0 stores are left, and no other node is available"):
            drain_node(ApiClient(world.meta.url), "sorter-1", True, 3600)


def test_the_time_is_a_limit(tmp_path: Path) -> None:
    with running(tmp_path, ranges=4) as world:
        begin(world)
        other = SorterProcess(world, "sorter-2")
        eventually(lambda: len({task.sorter_node for task in world.client.tasks().tasks}) == 2)
        other.take_nothing_more()
        with pytest.raises(CliError, match=r"sorter-1: . tasks and 0 stores are left after 0 s"):
            drain_node(ApiClient(world.meta.url), "sorter-1", True, 0)
        other.stop()


def test_a_worker_of_changefeeds_gives_its_feeds_away_first(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        world.client.create_tenant(TINY.tenant.cluster_id, TINY.tenant.tenant_id)
        first, second = Worker(world, "feeds-1"), Worker(world, "feeds-2")
        feed = NewChangefeed(changefeed_id="orders", sink_uri="kafka://b:1/t", start_ts="100", start_given=True)
        feeds = f"{world.meta.url}/v1/clusters/{TINY.tenant.cluster_id}/tenants/{TINY.tenant.tenant_id}/changefeeds"
        world.http.send("POST", feeds, feed, ChangefeedInfo)
        assert first.beat() == ["orders"]
        assert shards_of(world) == {"feeds-1": 1, "feeds-2": 0}
        with pytest.raises(CliError, match="feeds-1: 1 shards of changefeeds are left after 0 s"):
            drain_node(ApiClient(world.meta.url), "feeds-1", True, 0)
        assert first.beat() == []
        drain_node(ApiClient(world.meta.url), "feeds-1", True, PATIENCE_S)
        assert second.beat() == ["orders"]
        assert shards_of(world) == {"feeds-1": 0, "feeds-2": 1}


class Worker:
    """A worker of changefeeds as the meta server knows it: it registers, and asks which shards it is to hold."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        member = Membership(world.client, name, "changefeed", "http://127.0.0.1:1", instance=name, end=never_superseded)
        member.beat()

    def beat(self) -> list[str]:
        """The feeds of the shards that it is to hold."""
        answer = self._world.client.beat_feeds(WorkerBeat(node_id=self._name, instance=self._name, reports=[]))
        return [one.shard.changefeed_id for one in answer.shards]


def shards_of(world: World) -> dict[str, int]:
    """The number of shards that each worker holds."""
    return {node.node_id: node.shards for node in world.client.nodes().nodes if node.role == "changefeed"}


@pytest.mark.parametrize(
    ("others", "takers"),
    [
        ([], False),
        ([("sorter-2", "sorter", "alive")], True),
        ([("sorter-2", "sorter", "suspect")], True),
        ([("sorter-2", "sorter", "draining"), ("sorter-3", "sorter", "lost")], False),
        ([("dispatcher-1", "dispatcher", "alive")], False),
    ],
)
def test_who_could_take_over(others: list[tuple[str, str, str]], takers: bool) -> None:
    nodes = [
        {"node_id": name, "role": role, "state": state, "tasks": 1, "stores": 0, "shards": 0}
        for name, role, state in [("sorter-1", "sorter", "draining"), *others]
    ]
    assert left_on(nodes, "sorter-1") == ("1 tasks and 0 stores are left", takers)
    nodes[0] |= {"tasks": 0, "shards": 3}
    assert left_on(nodes, "sorter-1") == ("3 shards of changefeeds are left", takers)
    nodes[0]["shards"] = 0
    assert left_on(nodes, "sorter-1") == (None, takers)
