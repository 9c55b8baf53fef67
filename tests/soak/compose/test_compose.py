"""docker-compose.yml on a real Docker engine: what is pulled is what was pushed, whatever container or disk is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from support import golden
from support.chaos.disk import CannotMount
from support.chaos.plan import OWNER, Fault, Kind
from support.chaos.run import Options
from support.compare import shown, tenant_differences
from support.compose.chaos import FULL_SECONDS, ComposeChaos, started
from support.compose.containers import SERVICES, Containers
from support.compose.engine import NoEngine, docker
from support.not_run import not_run
from support.pull import Consumer
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.compose

ROWS_PER_S = 500
# Of each kind one killed, most for longer than their lease; database and object store restarted, MinIO's disk full.
FAULTS = (
    Fault(Kind.KILL, (OWNER,), 15.0),
    Fault(Kind.KILL, ("dispatcher",), 15.0),
    Fault(Kind.KILL, ("sorter",), 15.0, 1),
    Fault(Kind.KILL, ("schema",), 5.0),
    Fault(Kind.KILL, ("api",), 5.0),
    Fault(Kind.RESTART, ("mysql",)),
    Fault(Kind.KILL, ("mysql",), 15.0),
    Fault(Kind.RESTART, ("minio",)),
    Fault(Kind.KILL, ("minio",), 5.0),
    Fault(Kind.FULL, ("minio",), FULL_SECONDS),
    Fault(Kind.PAUSE, ("sorter",), 15.0),
)


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeChaos]:
    """However slow the machine: that the lag comes back is shown here, and how fast by `make compose-chaos`."""
    options = Options(
        tmp_path_factory.mktemp("compose"),
        rows_per_s=ROWS_PER_S,
        recover_s=PATIENCE_S,
        disk_bytes=2 << 30,
        simulate=("--txns-per-s", str(ROWS_PER_S // 4), "--ddl-per-min", "6"),
        faults=FAULTS,
    )
    try:
        with started(options) as running:
            yield running
    except (NoEngine, CannotMount) as reason:
        not_run(reason)


@pytest.fixture(scope="module")
def up(chaos: ComposeChaos) -> Containers:
    return chaos.containers


def test_every_container_runs_confined_and_healthy(up: Containers) -> None:
    for service in (*SERVICES, "minio", "mysql"):
        found = up.inspect(service)
        host = found["HostConfig"]
        eventually(lambda service=service: up.inspect(service)["State"]["Health"]["Status"] == "healthy")  # type: ignore[misc]
        assert found["Config"]["User"] not in ("", "0", "root"), service
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["Privileged"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        assert host["Memory"] > 0, service
        assert host["NanoCpus"] > 0, service
        for bindings in found["NetworkSettings"]["Ports"].values():
            assert {binding["HostIp"] for binding in bindings or ()} <= {"127.0.0.1"}, service


def test_only_sorters_have_java_and_nothing_has_a_compiler_or_a_secret(up: Containers) -> None:
    def found(image: str, *programs: str) -> str:
        search = (
            f"find / -xdev \\( {' -o '.join(f'-name {program}' for program in programs)} \\) -type f 2>/dev/null; true"
        )
        return docker("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", search)

    unwanted = ("gcc", "cc", "c++", "make", "pip", "pip3", "curl")
    assert found("tistream:dev", "java", "'spark-core*.jar'", *unwanted) == ""
    assert found("tistream-sorter:dev", *unwanted) == ""
    assert "/java" in found("tistream-sorter:dev", "java")
    for image in ("tistream:dev", "tistream-sorter:dev", "tistream-minio:dev"):
        config = json.loads(docker("image", "inspect", image))[0]["Config"]
        assert not [entry for entry in config["Env"] if "PASSWORD" in entry or "SECRET" in entry]
        print(image, f"{int(docker('image', 'inspect', '--format', '{{.Size}}', image)) / 1e6:.0f} MB")


def test_the_engine_takes_the_file_with_every_profile(up: Containers) -> None:
    services = json.loads(up.compose("config", "--format", "json"))["services"]
    assert {"upstream", "prometheus", "grafana"} < set(services)
    assert services["grafana"]["depends_on"]["prometheus"]["condition"] == "service_healthy"


def test_both_apis_serve_what_tidb_wrote(up: Containers) -> None:
    loaded = golden.load("everything")
    bucket = up.bucket()
    bucket.put(loaded.schema_snap.key, loaded.schema_snap.data)
    up.create_for(loaded)
    for delivery in loaded.files:
        bucket.put(delivery.key, delivery.data)
    for port in ("API_1_PORT", "API_2_PORT"):
        consumer = Consumer(up.url_of(port), loaded.tenant, up.http(PATIENCE_S))
        events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
        problems = tenant_differences(loaded, events)
        assert not problems, shown(problems)


def test_who_is_no_service_gets_nowhere(up: Containers) -> None:
    """From inside the platform's own network, by a container that has what clients have."""
    script = """
import ssl, sys, urllib.error, urllib.request as u
def ask(url, token=None):
    context = ssl.create_default_context(cafile="/clients/ca.crt")
    request = u.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        return u.urlopen(request, timeout=120, context=context).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return type(getattr(error, "reason", error)).__name__
for name in sys.argv[1:]:
    print(name, ask(f"https://{name}:8000/v1/tasks"), ask(f"https://{name}:8000/metrics", "x" * 40))
"""
    inside = [service for service in SERVICES if not service.startswith("api")]
    run = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "python3", "upstream", "-c", script, *inside)
    found = {line.split()[0]: line.split()[1:] for line in up.compose(*run).splitlines()}
    assert set(found) == set(inside)
    for service, answers in found.items():
        # Of TLS 1.3 a client ends its part before the server has looked at the certificate that is not there.
        assert all("SSL" in one or "Reset" in one or one == "RemoteDisconnected" for one in answers), (service, answers)


def test_prometheus_finds_every_service(up: Containers) -> None:
    """Grafana's image cannot be made of Debian's packages: its configuration is checked in test_compose_file.py."""
    up.up("prometheus")
    url = up.url_of("PROMETHEUS_PORT")

    def targets() -> dict[str, str]:
        found = httpx.get(f"{url}/api/v1/targets", trust_env=False, timeout=PATIENCE_S).json()["data"]["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in found}

    away = {"agent:8000", "changefeed:8000"}  # their profiles do not run here
    eventually(lambda: {health for target, health in targets().items() if target not in away} == {"up"})
    assert set(targets()) == {*away, *(f"{service}:8000" for service in SERVICES)}
    query = {"query": "sum by (role) (tistream_object_requests_total)"}

    def asking() -> set[str]:
        """The roles that have asked the object store, as Prometheus has it."""
        answer = httpx.get(f"{url}/api/v1/query", params=query, trust_env=False, timeout=PATIENCE_S).json()
        return {one["metric"]["role"] for one in answer["data"]["result"] if float(one["value"][1]) > 0}

    eventually(lambda: {"dispatcher", "sorter", "schema", "api"} <= asking())
    up.compose("stop", "prometheus")


def test_nothing_is_lost_whatever_container_or_disk_is(chaos: ComposeChaos) -> None:
    """The simulated upstream pushes, `tistream verify` pulls and holds it against the truth. Stops the platform."""
    chaos.run()
    outcome = chaos.outcome
    print(outcome.summary())
    assert not outcome.problems, "\n".join(outcome.problems)
    assert len(outcome.struck) == len(FAULTS)
    assert outcome.verify["events_compared_with_truth"] == outcome.verify["rows"] > 10_000
    assert outcome.manifests > 0
