"""deploy/k8s on a real Kubernetes: overlay `dev` is installed as docs/operations/install-kubernetes.md says, used,
confined, and a node is emptied."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.compose.engine import NoEngine
from support.kubernetes import images
from support.kubernetes.cluster import Cluster, cluster, waited
from support.kubernetes.policies import Enforcer
from support.kubernetes.programs import NoKubernetes
from support.manifests import K8S, OVERLAYS, rendered
from support.not_run import not_run
from support.platform import free_port
from support.settings_classes import IN_BASE

pytestmark = pytest.mark.kubernetes

ROOT = Path(__file__).parents[3]

_ALL = ("rollout", "status", "statefulset", "-l", "app.kubernetes.io/part-of=tistream", "--timeout", "10m")
_TISTREAM = str(Path(sys.executable).with_name("tistream"))
_KEYS = {"AWS_ACCESS_KEY_ID": "tistream", "AWS_SECRET_ACCESS_KEY": "tistream-dev"}
_PATIENCE_S = 600


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        images.make()
        with cluster(tmp_path_factory.mktemp("kubernetes")) as running:
            images.load(running)
            yield running
    except (NoKubernetes, NoEngine) as reason:
        not_run(reason)


def _there(up: Cluster, *arguments: str, check: bool = True) -> str:
    return up.kubectl("-n", "tistream", *arguments, check=check, timeout=_PATIENCE_S + 60)


@contextlib.contextmanager
def _forwarded(up: Cluster, service: str, port: int) -> Iterator[int]:
    """A port of this machine, again and again: a forwarding ends with its pod."""
    own = free_port()
    command = up.kubectl_command("-n", "tistream", "port-forward", f"service/{service}", f"{own}:{port}")
    loop = ["sh", "-c", 'while :; do "$@" >/dev/null 2>&1; sleep 0.5; done', "sh", *command]
    process = subprocess.Popen(loop, start_new_session=True)
    try:
        yield own
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_document(up: Cluster, overlay: str) -> None:
    """Strictly, with its admission; without PodMonitors, whose kind is the Prometheus operator's."""
    up.kubectl("apply", "--server-side", "-f", str(K8S / "overlays" / overlay / "namespace.yaml"))
    documents = [one for one in rendered(overlay) if one["kind"] != "PodMonitor"]
    command = up.kubectl_command("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    done = subprocess.run(command, input=yaml.safe_dump_all(documents), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert len(done.stdout.splitlines()) == len(documents)


@pytest.fixture(scope="module")
def keys(up: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the services, made and handed over as docs/operations/install-kubernetes.md says."""
    made = tmp_path_factory.mktemp("keys") / "keys"
    subprocess.run([ROOT / "scripts" / "keys", "-n", "tistream", made], check=True)
    up.kubectl("apply", "-f", str(K8S / "overlays" / "dev" / "namespace.yaml"))
    _there(up, "create", "secret", "generic", "tistream-keys", f"--from-file={made}")
    return made


def test_dev_is_ready_and_confined(up: Cluster, keys: Path) -> None:
    up.kubectl("apply", "-k", str(K8S / "overlays" / "dev"))
    _there(up, *_ALL)
    for service in IN_BASE:
        said = _there(
            up, "exec", f"tistream-{service}-0", "--", "sh", "-c", "id -u; touch /x; cat /proc/1/status", check=False
        )
        assert said.startswith("10001\n")
        assert "CapEff:\t0000000000000000" in said
        assert "NoNewPrivs:\t1" in said
        assert "Seccomp:\t2" in said
        assert _there(up, "exec", f"tistream-{service}-0", "--", "ls", "/x", check=False) == ""


def test_nothing_is_lost_while_a_node_is_emptied_under_policies(up: Cluster, keys: Path, tmp_path: Path) -> None:
    """The simulated upstream pushes; what is pulled is held against the truth. Every connection is made anew."""
    enforcer, truth = Enforcer(up), tmp_path / "truth.jsonl"

    def ready() -> bool:
        enforcer.refresh()
        found = up.get("statefulsets", "-n", "tistream")["items"]
        return all(one["status"].get("readyReplicas") == one["spec"]["replicas"] for one in found)

    enforcer.refresh()
    with _forwarded(up, "tistream-api", 8000) as api, _forwarded(up, "minio", 9000) as minio:
        tls = {"TISTREAM_CA_FILE": str(keys / "ca.crt"), "TISTREAM_TOKEN_FILE": str(keys / "first.token")}
        url, environment = f"https://localhost:{api}", {**os.environ, **_KEYS, **tls}
        objects = f"s3://tistream?endpoint=http://127.0.0.1:{minio}&region=us-east-1"
        tenant = ("--cluster", "1", "--tenant", "load", "--truth", str(truth))
        load = [
            _TISTREAM,
            "simulate",
            "--objects",
            objects,
            "--url",
            url,
            *tenant,
            "--rows-per-s",
            "100",
            "--txns-per-s",
            "25",
        ]
        upstream = subprocess.Popen(load, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            waited(lambda: truth.exists() and len(truth.read_text().splitlines()) > 20, _PATIENCE_S, "no truth")
            _there(up, "scale", "statefulset", "tistream-sorter", "tistream-dispatcher", "--replicas", "2")
            waited(ready, _PATIENCE_S, "not two of each")
            node = up.get("pod", "-n", "tistream", "tistream-sorter-0")["spec"]["nodeName"]
            drain = up.kubectl_command(
                "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "10m"
            )
            emptying = subprocess.Popen(drain, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            waited(lambda: ready() and emptying.poll() is not None, _PATIENCE_S, f"{node} is not empty")
            assert emptying.returncode == 0
            pods = up.get("pods", "-n", "tistream", "-l", "app.kubernetes.io/part-of=tistream")["items"]
            assert node not in {one["spec"]["nodeName"] for one in pods}
            up.kubectl("uncordon", node)
        finally:
            upstream.send_signal(signal.SIGINT)
            upstream.wait(_PATIENCE_S)
        verify = [_TISTREAM, "verify", url, *tenant, "--until-truth-end"]
        done = subprocess.run(verify, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    asked = _there(
        up,
        "exec",
        "tistream-dispatcher-0",
        "--",
        "python3",
        "-c",
        "import socket; print(socket.socket().connect_ex((socket.gethostbyname('mariadb'), 3306)))",
        check=False,
    )
    assert asked.strip() != "0", "a policy that drops nothing proves nothing"
