"""docker-compose.yml and its images, read strictly: what is true of every container, and of every setting."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import minio
from support.chaos.plan import OWNER, Kind
from support.compose import engine
from support.compose.chaos import faults
from support.compose.containers import container_of
from support.settings_classes import settings_class
from tistream.service import allocators
from tistream.service.settings import NESTED
from tistream_agent.settings import UpstreamTls

ROOT = Path(__file__).parents[3]
NODES = {"meta": 3, "dispatcher": 2, "sorter": 2, "api": 2, "schema": 1, "ingest": 1}
OURS = [f"{role}-{number}" if count > 1 else role for role, count in NODES.items() for number in range(1, count + 1)]
OURS += ["agent", "changefeed"]  # of profiles, and no targets of chaos
ONCE = ("bucket", "keys")  # run and end
KEYS = {"service.key", "metrics.token", "tls.crt", "tls.key", "ca.crt"}  # as scripts/keys makes them
PROFILES = {
    "agent": ["connect"],
    "changefeed": ["changefeed", "kafka"],
    "kafka": ["kafka"],
    "upstream": ["demo"],
    "prometheus": ["monitoring"],
    "grafana": ["monitoring"],
}
# What .env has to state of the cluster that an agent reads.
STATED = {"agent": {"pd": "pd:2379", "cluster": "7", "tenant": "shop"}}
DOCKERFILES = ("deploy/docker/Dockerfile", "deploy/docker/minio.Dockerfile")
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")


class _Strict(yaml.SafeLoader):
    """A key that is there twice is an error, and not the last one's."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if key.value != "<<"]
        assert len(names) == len(set(names)), f"{node.start_mark}: twice: {names}"
        return super().construct_mapping(node, deep)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / name).read_text(), _Strict)
    return found


def _default(text: object) -> str:
    """What is read where .env says nothing but what it must."""
    return _VARIABLE.sub(lambda match: match[3] if match[2] == "-" else "given", str(text))


COMPOSE = _read("docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_it_holds_several_of_everything() -> None:
    assert set(SERVICES) == {*OURS, "minio", "mysql", *ONCE, *PROFILES}
    assert {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service} == PROFILES


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    user, _, group = service["user"].partition(":")
    assert int(user) > 0
    assert group
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices", "container_name"} & set(service)
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert float(service["cpus"]) > 0
    assert service["pids_limit"] > 0
    assert service["stop_grace_period"]
    assert service["restart"] == ("no" if name in (*ONCE, "upstream") else "unless-stopped")
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
    assert all("size=" in mount for mount in service["tmpfs"])
    for port in service.get("ports", ()):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", _default(port)), port
    for volume in service.get("volumes", ()):
        source, _, rest = volume.partition(":")
        assert source in COMPOSE["volumes"] or rest.endswith(":ro"), volume
        assert "docker.sock" not in volume


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_tells_its_health_and_waits_for_healthy_ones(name: str) -> None:
    service = SERVICES[name]
    own = service["image"].startswith("tistream") and name not in ("minio", "upstream")
    assert own or service["healthcheck"]["test"], "the image's own, or one here"
    assert service.get("healthcheck", {}).get("disable", False) is (name in ONCE)
    for other, how in service.get("depends_on", {}).items():
        wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert how == {"condition": wanted}, (name, other)


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_built_here_or_pinned(name: str) -> None:
    service = SERVICES[name]
    image = _default(service["image"])
    if image.endswith(":dev"):
        assert service["pull_policy"] == "never"
        assert any("build" in other and other["image"] == service["image"] for other in SERVICES.values())
    else:
        assert re.search(r":v?\d+\.\d+\.\d+$", image), image


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_with_a_valid_value(name: str, tmp_path: Path) -> None:
    service, role = SERVICES[name], name.partition("-")[0]
    stated = STATED.get(name, {})
    assert service["command"] == ["python", "-m", f"tistream_{role}"]
    assert service["image"] == ("tistream-sorter:dev" if role in ("sorter", "ingest") else "tistream:dev")
    prefix = f"TISTREAM_{role.upper()}{NESTED}"
    given = {key: _default(value) for key, value in service["environment"].items() if key.startswith("TISTREAM_")}
    of_commands = {
        "TISTREAM_URL": "https://localhost:8000",
        "TISTREAM_CA_FILE": "/keys/ca.crt",
        "TISTREAM_TOKEN_FILE": "/keys/first.token",
    }
    if role == "meta":  # which is looked into
        assert given["TISTREAM_META__FIRST_TOKEN_FILE"] == "/keys/first.token"
        (first_token := tmp_path / "first.token").write_text(f"tst_{'0' * 16}_{'a' * 43}\n")
        given["TISTREAM_META__FIRST_TOKEN_FILE"] = str(first_token)
    assert given.get("TISTREAM_API__AUTH") == ("on" if role == "api" else None)
    assert {key: given.pop(key) for key in of_commands if key in given} == (of_commands if role == "api" else {})
    assert all(key.startswith(prefix) for key in given)
    # Arguments are validated as the environment is, and an unknown one is refused.
    tls = {
        key.removeprefix(f"{prefix}TLS{NESTED}").lower(): given.pop(key) for key in list(given) if f"{NESTED}TLS" in key
    }
    own: dict[str, Any] = {key.removeprefix(prefix).lower(): value for key, value in given.items()}
    assert {key: own[key] for key in stated} == dict.fromkeys(stated, ""), "only .env states them"
    own |= stated
    upstream = {key.removeprefix("upstream_tls__"): own.pop(key) for key in list(own) if key.startswith("upstream_tls")}
    if name == "agent":
        own["upstream_tls"] = upstream
        assert upstream == dict.fromkeys(("ca_file", "cert_file", "key_file"), "")
    settings = settings_class(role)(tls=tls, **own)
    assert settings.url == f"https://{name}:8000"
    assert "keys:/keys:ro" in service["volumes"]
    files = (settings.service_key_file, settings.metrics_token_file, *settings.tls.model_dump().values())
    assert {path.name for path in files if isinstance(path, Path)} == KEYS
    assert all(path.parent == Path("/keys") for path in files if isinstance(path, Path))
    assert (settings.tls.client_ca_file is None) == (role == "api"), "users of the API have no certificate"
    assert settings.port == 8000, "the image's health check asks there"
    assert settings.node == (name if NODES.get(role, 1) > 1 else f"{role}-1")
    assert settings.meta_url.split(",") == [f"https://meta-{number}:8000" for number in (1, 2, 3)]
    assert settings.objects_url.startswith("s3://tistream?endpoint=http://minio:9000")


def test_the_agent_reads_certificates_of_the_upstream_from_a_folder_that_it_cannot_write() -> None:
    assert [volume for volume in SERVICES["agent"]["volumes"] if volume.endswith(":/upstream:ro")]
    assert UpstreamTls(ca_file="").ca_file is None, "a variable that .env does not set"  # type: ignore[arg-type]


def test_env_example_names_every_variable_with_its_default_and_no_password() -> None:
    text = (ROOT / ".env.example").read_text()
    named = dict(re.findall(r"^#?([A-Z0-9_]+)=(.*)$", text, re.MULTILINE))
    used: dict[str, set[str]] = {}
    for variable, how, value in _VARIABLE.findall((ROOT / "docker-compose.yml").read_text()):
        used.setdefault(variable, set()).add(value if how == "-" else "")
    assert set(used) == set(named)
    for variable, defaults in used.items():
        assert len(defaults) == 1, f"{variable} has several defaults: {defaults}"
        if not variable.endswith("PASSWORD") and variable != "MINIO_ROOT_USER":
            assert defaults == {named[variable]}, variable
    assert not [name for name, value in named.items() if name.endswith("PASSWORD") and value]


def test_the_databases_root_whose_password_is_in_the_log_is_let_in_from_its_own_container_alone() -> None:
    given = SERVICES["mysql"]["environment"]
    assert given["MYSQL_RANDOM_ROOT_PASSWORD"] == "yes"
    assert given["MYSQL_ROOT_HOST"] == "localhost"


def test_a_program_is_of_one_version_wherever_it_is_named() -> None:
    for name in ("docker-compose.yml", ".env.example", *DOCKERFILES, "deploy/k8s/overlays/dev/minio.yaml"):
        found = set(re.findall(r"minio/minio:[\w.-]+", (ROOT / name).read_text()))
        assert found <= {minio.IMAGE}, name
    assert f"minio_version={minio.VERSION}\n" in (ROOT / "scripts" / "compose-images").read_text()
    pythons = {
        SERVICES[name]["build"]["args"][f"{kind}_IMAGE"]
        for name in ("meta-1", "sorter-1")
        for kind in ("PYTHON", "BUILD")
    }
    assert {_default(python) for python in pythons} == {engine.PYTHON_IMAGE}


def test_every_name_by_which_a_service_is_called_is_in_the_certificate() -> None:
    script = SERVICES["keys"]["command"][-1]
    [line] = [line for line in script.splitlines() if line.startswith("/opt/keys ")]
    assert set(line.split()[3:]) == set(OURS)
    assert line.split()[1:3] == ["-g", "/keys"]


def test_only_services_and_prometheus_have_the_keys() -> None:
    having = {name for name, service in SERVICES.items() if any("keys:" in one for one in service.get("volumes", ()))}
    assert having == {*OURS, "keys", "prometheus"}


def test_prometheus_asks_every_service() -> None:
    [job] = _read("deploy/compose/prometheus.yml")["scrape_configs"]
    named = {Path(path).name for path in (*job["tls_config"].values(), *job["authorization"].values())}
    assert (job["scheme"], named) == ("https", KEYS - {"service.key"})
    assert "keys:/keys:ro" in SERVICES["prometheus"]["volumes"]
    assert SERVICES["prometheus"]["group_add"] == ["10001"]
    asked = {(one["labels"]["role"], target) for one in job["static_configs"] for target in one["targets"]}
    assert asked == {(name.partition("-")[0], f"{name}:8000") for name in OURS}


def test_secrets_of_tenants_are_sealed_by_api_servers_and_opened_by_workers() -> None:
    sealing = {name for name in OURS if "TISTREAM_API__SECRETS_PUBLIC_FILE" in SERVICES[name]["environment"]}
    assert sealing == {"api-1", "api-2"}
    files = {variable.removeprefix("/keys/") for variable in map(str, SERVICES["changefeed"]["environment"].values())}
    assert "secrets.key" in files
    having = {name for name in OURS if "/keys/secrets.key" in SERVICES[name]["environment"].values()}
    assert having == {"changefeed"}


def test_feeds_may_write_to_the_broker_of_the_profile_which_is_the_kafka_of_the_tests() -> None:
    hosts = _default(SERVICES["changefeed"]["environment"]["TISTREAM_CHANGEFEED__SINK_HOSTS"])
    settings = dict(
        line.split("=", 1)
        for line in (ROOT / "deploy/compose/kafka.properties").read_text().splitlines()
        if not line.startswith("#")
    )
    command = SERVICES["kafka"]["command"][-1]
    assert f'"advertised.listeners=PLAINTEXT://{hosts},MACHINE://127.0.0.1:$$MACHINE_PORT"' in command
    assert SERVICES["kafka"]["environment"] == {"MACHINE_PORT": "${KAFKA_PORT:-9094}"}
    assert "MACHINE://:9094" in settings["listeners"].split(",")
    assert settings["listeners"].split(",")[1] == "CONTROLLER://127.0.0.1:9093", "nobody else may be a controller"
    folder = next(one.partition(":")[2] for one in SERVICES["kafka"]["volumes"] if one.startswith("kafka:"))
    assert settings["log.dirs"].startswith(folder)
    jars = (ROOT / "tools/tistream_cli/platform/kafka_jars.xml").read_text()
    assert _default(SERVICES["kafka"]["image"]).partition(":")[2] in re.findall(r"<version>([^<]+)</version>", jars)


def test_grafana_is_told_of_prometheus() -> None:
    [source] = _read("deploy/compose/grafana/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_the_override_for_local_bases_changes_images_alone() -> None:
    local = _read("deploy/compose/local.yml")["services"]
    built = {name for name, service in SERVICES.items() if "build" in service}
    assert set(local) == built | {"kafka", "mysql", "prometheus"}
    for name, service in local.items():
        assert set(service) <= {"image", "build", "pull_policy"}, name
        if name in built:
            assert set(service["build"]) == {"args"}


def test_a_round_of_chaos_strikes_every_kind_of_container_and_a_seed_repeats_it() -> None:
    one_round = list(itertools.islice(faults(1), 22))
    struck = {target for fault in one_round for target in fault.targets}
    assert struck == {*NODES, OWNER, "mysql", "minio"}
    assert {container_of(role, pick) for role in struck - {OWNER} for pick in range(6)} == set(SERVICES) - {
        *ONCE,
        *PROFILES,
    }
    for role in struck:
        kinds = {fault.kind for fault in one_round if role in fault.targets}
        assert {Kind.KILL, Kind.PAUSE} <= kinds, role
    assert {Kind.RESTART, Kind.FULL} <= {fault.kind for fault in one_round}
    assert one_round == list(itertools.islice(faults(1), 22)) != list(itertools.islice(faults(2), 22))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_have_pinned_bases_as_arguments_and_a_user_of_their_own(name: str) -> None:
    lines = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", "\n".join(lines), re.MULTILINE))
    stages: dict[str, str] = {}
    for line in lines:
        if match := re.fullmatch(r"FROM (\S+)(?: AS (\S+))?", line):
            base = match[1]
            assert base in stages or re.fullmatch(r"\$\{(\w+)\}", base), f"{base} is neither a stage nor an argument"
            stages[match[2] or "last"] = base
    assert stages
    for argument, value in arguments.items():
        pinned = re.search(r":(v?\d+\.\d+\.\d+\S*|RELEASE\.\S+)$", value) or value == "${PYTHON_IMAGE}"
        assert argument.endswith("_IMAGE"), argument
        assert pinned, value
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["10001:10001"]
    assert not [line for line in lines if line.startswith("ADD ") or "apt-get" in line or "curl " in line]
    assert not [line for line in lines if re.match(r"(ENV|ARG) .*(PASSWORD|SECRET|TOKEN|INDEX_URL)", line)]


def test_what_is_installed_is_locked_with_hashes_and_the_build_tools_stay_behind() -> None:
    text = (ROOT / DOCKERFILES[0]).read_text().replace("\\\n", " ")
    installs = [line for line in text.split("\n") if re.search(r"bin/pip\S* .*(install|wheel|download) ", line)]
    assert len(installs) >= 4
    for line in installs:
        for part in re.findall(r"bin/pip [^&]*", line):
            own = "-w /wheels/own" in part  # our own package: hatchling, which is locked, makes it of this tree
            assert "--require-hashes" in part or "--no-index" in part or own, part
    runtime = text[text.index(" AS tistream\n") :]
    assert "/bin/pip" not in runtime
    for lock in ("requirements.lock", "requirements-java.lock", "requirements-build.lock"):
        assert f"!{lock}" in (ROOT / ".dockerignore").read_text().splitlines()
        assert "--hash=sha256:" in (ROOT / lock).read_text()


def test_workers_of_changefeeds_keep_freed_memory_in_containers_too() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    pod, *_ = yaml.safe_load_all((ROOT / "deploy/k8s/components/changefeed/changefeed.yaml").read_text())
    [container] = pod["spec"]["template"]["spec"]["containers"]
    for found in (
        compose["services"]["changefeed"]["environment"],
        {one["name"]: one.get("value") for one in container["env"]},
    ):
        assert {name: found.get(name) for name in allocators.ENVIRON} == allocators.ENVIRON
