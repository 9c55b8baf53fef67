"""Spark's Kubernetes backend as deploy/k8s sets it up: a real driver, and executors made of the rendered manifests."""
# Attack: every packet between Spark's driver and executors, searched for a row; an executor that guesses the secret

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from support import golden as golden_sets
from support.effort import cases
from support.loopback_bytes import watched
from support.manifests import environment, executor_template, of_kind, rendered
from support.sorter_world import SorterWorld
from support.spark import own_jvm
from support.tiny_kubernetes import TinyKubernetes, tiny_kubernetes
from support.waiting import PATIENCE_S
from tistream.storage.open import open_objects
from tistream_sorter.jobs.run import SparkRunner
from tistream_sorter.settings import SorterSettings
from tistream_sorter.spark.session import build_session

pytestmark = pytest.mark.spark

DRIVER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "tistream-sorter-0", "labels": {}},
    "spec": {"containers": [{"name": "sorter", "image": "tistream-sorter"}]},
}


def _conf(folder: Path) -> dict[str, str]:
    """As the sorter's pod has it, but for what cannot be on one machine: addresses, free ports, memory."""
    documents = rendered("prod")
    settings = json.loads(environment(documents, "tistream-sorter")["TISTREAM_SORTER__SPARK__CONF"])
    template = folder / "executor.yaml"
    template.write_text(yaml.safe_dump(executor_template(documents)))
    assert SorterSettings(spark={"conf": settings}).spark.conf == settings
    return settings | {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.port": "0",
        "spark.driver.blockManager.port": "0",
        "spark.blockManager.port": "0",
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.kubernetes.executor.limit.cores": "1",
        "spark.default.parallelism": "2",
    }


@pytest.fixture(scope="module", autouse=True)
def jvm() -> Iterator[None]:
    """One for all drivers here: their settings are those of one manifest."""
    with own_jvm():
        yield


@contextmanager
def driver(folder: Path, **more: str) -> Iterator[tuple[TinyKubernetes, SparkSession]]:
    """Its session, on a Kubernetes of its own."""
    with tiny_kubernetes(folder) as (kubernetes, url):
        kubernetes.add(json.loads(json.dumps(DRIVER)))
        session = build_session(f"k8s://{url}", "tests", _conf(folder) | more)
        try:
            yield kubernetes, session
        finally:
            session.stop()


def _wait_for(ready: Callable[[], bool], kubernetes: TinyKubernetes) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        logs = "\n".join(path.read_text()[-1500:] for path in kubernetes.folder.glob("*.log"))
        assert time.monotonic() < deadline, logs
        time.sleep(0.1)


@pytest.mark.parametrize("encrypted", cases([True], [False]))
def test_executors_in_pods_commit_the_oracles_rows_and_nobody_reads_them_on_the_way_or_joins(
    tmp_path: Path, encrypted: bool
) -> None:
    """Also after an executor was lost. Between driver and executors neither Spark's messages nor what a task is given
    can be read; without encryption both are seen, so that they can be. A stranger is an executor that guesses the
    secret."""
    more = {} if encrypted else {"spark.network.crypto.enabled": "false"}
    message, ours = b"org.apache.spark.scheduler", b"of-a-customers-row-" + os.urandom(8).hex().encode()
    golden = golden_sets.load("everything")
    half = len(golden.files) // 2
    with driver(tmp_path, **more) as (kubernetes, session):
        url = f"file://{tmp_path}/objects"
        world = SorterWorld(golden, [], objects=open_objects(url), runner=SparkRunner(session, url))
        for file in golden.files[:half]:
            world.push(file)
        world.tick()
        _wait_for(lambda: len(kubernetes.running()) == 2, kubernetes)
        with watched(message, ours) as seen:
            lost = kubernetes.running()[0]
            kubernetes.processes[lost].kill()
            _wait_for(lambda: len(set(kubernetes.running()) - {lost}) == 2, kubernetes)
            _pods_are_as_the_template_says(kubernetes)
            given = [ours.decode()] * 50
            told = session.sparkContext.parallelize(given, 2).map(len).collect()
            assert told == [len(ours)] * 50
            if encrypted:
                _a_stranger_is_not_let_in(kubernetes, session)
                kubernetes.delete(["stranger"])
        for file in golden.files[half:]:
            world.push(file)
        _wait_for(lambda: _all_committed(world), kubernetes)
        assert world.stopped() == []
        columns = ["key", "start_ts", "commit_ts", "op", "value", "old_value"]
        truth = golden_sets.committed_rows(golden.name).sort("commit_ts", "start_ts", "key")
        assert world.pool().select(columns).equals(truth.select(columns))
        _the_role_allows_what_was_asked(kubernetes, session)
    assert seen.packets > 0
    assert [count > 0 for count in seen.counts.values()] == [not encrypted] * 2, seen.counts


def _all_committed(world: SorterWorld) -> bool:
    world.tick()
    return len(world.pool()) == len(golden_sets.committed_rows("everything"))


def _a_stranger_is_not_let_in(kubernetes: TinyKubernetes, session: SparkSession) -> None:
    _wait_for(lambda: len(kubernetes.running()) == 2, kubernetes)
    stranger = json.loads(json.dumps(kubernetes.made[0]))
    stranger["metadata"] = {"name": "stranger", "labels": {}}
    told = {one["name"]: one for one in stranger["spec"]["containers"][0]["env"]}
    told["_SPARK_AUTH_SECRET"]["value"] = "a guess"
    told["SPARK_EXECUTOR_ID"]["value"] = "99"
    kubernetes.create(stranger)
    _wait_for(lambda: kubernetes.processes["stranger"].poll() is not None, kubernetes)
    assert kubernetes.processes["stranger"].returncode != 0
    assert session.sparkContext.parallelize(range(4), 2).map(abs).collect() == [0, 1, 2, 3]


def _pods_are_as_the_template_says(kubernetes: TinyKubernetes) -> None:
    template = executor_template(rendered("prod"))
    assert template is not None
    assert len(kubernetes.made) >= 3
    for pod in kubernetes.made:
        spec, wanted = pod["spec"], template["spec"]
        [container], [given] = spec["containers"], wanted["containers"]
        for name in ("securityContext", "serviceAccountName", "automountServiceAccountToken", "enableServiceLinks"):
            assert spec[name] == wanted[name]
        assert container["args"] == [*given["args"], "executor"]
        for name in ("securityContext", "envFrom"):
            assert container[name] == given[name]
        assert pod["metadata"]["labels"].items() >= template["metadata"]["labels"].items()
        assert pod["metadata"]["ownerReferences"][0]["name"] == "tistream-sorter-0"
        assert container["image"] == environment(rendered("prod"), "tistream-sorter")["EXECUTOR_IMAGE"]
        assert container["resources"]["limits"].keys() >= {"memory", "ephemeral-storage"}
        mounted = {one["mountPath"] for one in container["volumeMounts"]}
        assert mounted == {"/tmp", "/scratch"}
        assert all("sizeLimit" in one["emptyDir"] for one in spec["volumes"] if one["name"] == "tmp")


def _the_role_allows_what_was_asked(kubernetes: TinyKubernetes, session: SparkSession) -> None:
    session.stop()
    assert not any(pod["metadata"]["name"] != "tistream-sorter-0" for pod in kubernetes.pods.values())
    [rule] = of_kind(rendered("prod"), "Role")["tistream-spark-driver"]["rules"]
    allowed = {(verb, resource) for verb in rule["verbs"] for resource in rule["resources"]}
    assert rule["apiGroups"] == [""]
    assert kubernetes.asked - allowed == set()
    assert allowed - kubernetes.asked == set()
