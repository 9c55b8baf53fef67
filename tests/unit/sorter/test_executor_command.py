"""The command line of an executor in a Kubernetes pod, and what a sorter tells of holds to who asks for metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from support.sorter_world import SorterWorld
from support.tiny_tenant import TinyTenant, watermark
from tistream_sorter.jobs.executor import command
from tistream_sorter.metrics import HoldCollector

TINY = TinyTenant()
POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@tistream-sorter-0.tistream-sorter:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "tistream-sorter-0-exec-3",
}


def test_options_come_in_their_order_and_arguments_from_the_environment() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)}
    line = command(POD | options | {"SPARK_CLASSPATH": "/extra/*"}, Path("/java/bin/java"), Path("/spark/jars"))
    assert line[:8] == [
        "/java/bin/java", "-Dn=0", "-Dn=2", "-Dn=10", "-Xms1g", "-Xmx1g", "-cp", "/extra/*:/spark/jars/*"
    ]  # fmt: skip
    assert line[8] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    arguments = dict(zip(line[9::2], line[10::2], strict=True))
    assert arguments["--driver-url"] == POD["SPARK_DRIVER_URL"]
    assert arguments["--executor-id"] == "3"
    assert arguments["--hostname"] == "10.1.2.3"


@pytest.mark.parametrize("missing", sorted(POD))
def test_what_the_driver_has_not_set_is_named(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        command({name: value for name, value in POD.items() if name != missing}, Path("java"), Path("jars"))


def test_holds_are_counted_when_somebody_asks() -> None:
    world = SorterWorld(TINY, [])
    registry = CollectorRegistry()
    registry.register(
        HoldCollector(
            lambda: [hold for task in world.node.tasks() for hold in task.status(world.clock.now_ms(), 0).holds]
        )
    )
    assert 'tistream_sorter_holds{stage="damaged"} 0.0' in generate_latest(registry).decode()
    world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
    world.push(TINY.file(1, 210, 200, [], watermark(9, 8, 205)))  # 6 to 8 of the log have not come
    world.tick()
    assert 'tistream_sorter_holds{stage="push"} 1.0' in generate_latest(registry).decode()
