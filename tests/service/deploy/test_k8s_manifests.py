"""Both overlays as kustomize renders them: valid to Kubernetes' own schemas, and to rules of ours."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from support.app_surfaces import surfaces
from support.manifests import K8S, OVERLAYS, Document, environment, executor_template, of_kind, pods, rendered
from support.settings_classes import IN_BASE, settings_class
from tistream.service.settings import NESTED, load_settings
from tistream_sorter.settings import SorterSettings

KUBERNETES = ("1.34", "1.37")  # the oldest and the newest whose schemas are at hand
CUSTOM = {"PodMonitor"}  # no kind of Kubernetes' own
NAME = "app.kubernetes.io/name"
KEYS = {"service.key", "metrics.token", "tls.crt", "tls.key", "ca.crt"}  # as scripts/keys makes them
OF_COMMANDS = {
    "TISTREAM_URL",
    "TISTREAM_CA_FILE",
    "TISTREAM_CERT_FILE",
    "TISTREAM_KEY_FILE",
    "TISTREAM_SERVICE_KEY_FILE",
}
WORKLOADS = [f"tistream-{service}" for service in IN_BASE]

both = pytest.mark.parametrize("overlay", OVERLAYS)
each_service = pytest.mark.parametrize("service", IN_BASE)


def container_of(documents: list[Document], workload: str) -> Document:
    [container] = pods(documents)[workload]["spec"]["containers"]
    found: Document = container
    return found


def bytes_of(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi)", quantity).groups()  # type: ignore[union-attr]
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30}[unit]


@both
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_document_is_valid_to_the_letter(overlay: str, version: str) -> None:
    documents = rendered(overlay)
    assert {one["kind"] for one in documents} >= {"StatefulSet", "Service", "NetworkPolicy", "PodDisruptionBudget"}
    template = executor_template(documents)
    for document in [*documents, *([template] if template else [])]:
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_refuses_what_is_misspelt() -> None:
    document = of_kind(rendered("dev"), "StatefulSet")["tistream-meta"]
    document["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["timeoutSecond"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES[0], strict=True)


@both
def test_no_pod_has_more_rights_than_it_needs(overlay: str) -> None:
    documents = rendered(overlay)
    [namespace] = of_kind(documents, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    accounts = of_kind(documents, "ServiceAccount")
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    with_token = set()
    for name, pod in pods(documents).items():
        spec = pod["spec"]
        assert spec["enableServiceLinks"] is False, name
        if spec["automountServiceAccountToken"]:
            with_token.add(name)
        if name.startswith("tistream-"):
            assert spec["serviceAccountName"] == name
            assert name in accounts
            assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys(), name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
    assert with_token == ({"tistream-sorter"} if overlay == "prod" else set())


@both
def test_every_container_is_bounded_and_every_image_pinned(overlay: str) -> None:
    documents = rendered(overlay)
    for name, pod in pods(documents).items():
        for container in pod["spec"]["containers"]:
            limits = container["resources"]["limits"]
            assert "ephemeral-storage" in limits, name
            if name != "tistream-executor":  # Spark adds image, processors and memory
                assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
                assert "memory" in limits, name
                assert re.fullmatch(r".+:[^:/]+", container["image"]), name
                assert not container["image"].endswith(":latest")
        on_disk = [one["emptyDir"].get("sizeLimit") for one in pod["spec"]["volumes"] if "emptyDir" in one]
        assert None not in on_disk, name
        assert sum(map(bytes_of, on_disk)) <= bytes_of(limits["ephemeral-storage"]), name


@both
@each_service
def test_probes_ask_for_what_the_service_answers(overlay: str, service: str) -> None:
    container = container_of(rendered(overlay), f"tistream-{service}")
    paths = {probe: _probed(container[probe]) for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(paths.values()) <= surfaces()[service].paths
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    variables = environment(rendered(overlay), f"tistream-{service}")
    assert str(ports["http"]) == variables[f"TISTREAM_{service.upper()}__PORT"]
    # kubelet has no certificate: where one is demanded, the container asks itself.
    mutual = f"TISTREAM_{service.upper()}__TLS__CLIENT_CA_FILE" in variables
    assert {"exec" in container[probe] for probe in paths} == {mutual}
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def _probed(probe: Document) -> str:
    """The path that is asked for."""
    if "exec" in probe:
        *command, path = probe["exec"]["command"]
        assert command == ["python3", "-I", "-S", "/opt/healthy.py"]
        return str(path)
    assert (probe["httpGet"]["port"], probe["httpGet"]["scheme"]) == ("http", "HTTPS")
    return str(probe["httpGet"]["path"])


@both
@each_service
def test_variables_are_settings_and_valid_together(
    overlay: str, service: str, monkeypatch: Any, tmp_path: Path
) -> None:
    (first_token := tmp_path / "first.token").write_text(f"tst_{'0' * 16}_{'a' * 43}\n")
    documents = rendered(overlay)
    variables = environment(documents, f"tistream-{service}")
    prefix = f"TISTREAM_{service.upper()}{NESTED}"
    own = {name: value for name, value in variables.items() if name.startswith("TISTREAM_")}
    assert {name for name in own if not name.startswith(prefix)} <= OF_COMMANDS
    for name, value in variables.items():
        assert "$(" not in value, f"{name} names what stands behind it, or nowhere"
        monkeypatch.setenv(name, value.replace("/keys/first.token", str(first_token)))  # it is looked into
    settings = load_settings(settings_class(service))
    assert settings.host == "0.0.0.0"  # and so it has its key, and TLS
    assert settings.tls.serves
    assert (settings.tls.client_ca_file is None) == (service == "api"), "users of the API have tokens"
    headless = {name for name, one in of_kind(documents, "Service").items() if one["spec"].get("clusterIP") == "None"}
    [host] = re.findall(r"^https://([^:/]+):\d+$", settings.url)
    pod, named, *rest = host.split(".")
    assert rest == ["tistream", "svc"]
    assert pod == settings.node == f"tistream-{service}-0"
    assert named in headless
    container = container_of(documents, f"tistream-{service}")
    assert "command" not in container, "it would take the place of the image's entry point"
    assert container["args"] == ["python", "-m", f"tistream_{service}"]


@both
@each_service
def test_every_service_has_the_keys_that_its_variables_name(overlay: str, service: str) -> None:
    documents = rendered(overlay)
    pod = pods(documents)[f"tistream-{service}"]
    [mount] = [one for one in container_of(documents, f"tistream-{service}")["volumeMounts"] if one["name"] == "keys"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/keys", True)
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "keys"]
    # Only meta servers make the first token one that is taken; nobody else needs it.
    items = volume["secret"].pop("items", None)
    assert volume["secret"] == {"secretName": "tistream-keys", "defaultMode": 0o440}
    assert items is None if service == "meta" else {one["key"]: one["path"] for one in items} == {k: k for k in KEYS}
    variables = environment(documents, f"tistream-{service}").items()
    named = {value.removeprefix("/keys/") for name, value in variables if name.endswith("_FILE")}
    assert named == (KEYS | {"first.token"} if service == "meta" else KEYS)
    # A command in the pod may do what the service may, or what a user may who is told whom to trust.
    own = {name for name, _ in variables} & OF_COMMANDS
    expected = {"api": {"TISTREAM_URL", "TISTREAM_CA_FILE"}, "sorter": OF_COMMANDS, "dispatcher": OF_COMMANDS}
    assert own == expected.get(service, set())


def test_prometheus_shows_the_token_and_a_certificate() -> None:
    [monitor] = of_kind(rendered("prod"), "PodMonitor").values()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    shown = endpoint["tlsConfig"]
    assert shown.pop("serverName") == "tistream"  # pods are asked by address, which no certificate has
    assert "insecureSkipVerify" not in shown
    found = [
        shown["ca"]["secret"],
        shown["cert"]["secret"],
        shown["keySecret"],
        endpoint["authorization"]["credentials"],
    ]
    assert {one["name"] for one in found} == {"tistream-keys"}
    assert [one["key"] for one in found] == ["ca.crt", "tls.crt", "tls.key", "metrics.token"]


@both
def test_everybody_knows_every_meta_server(overlay: str) -> None:
    documents = rendered(overlay)
    metas = of_kind(documents, "StatefulSet")["tistream-meta"]
    expected = [
        f"https://tistream-meta-{number}.tistream-meta.tistream.svc:8001" for number in range(metas["spec"]["replicas"])
    ]
    for service in set(IN_BASE) - {"meta"}:
        known = environment(documents, f"tistream-{service}")[f"TISTREAM_{service.upper()}__META_URL"]
        assert known.split(",") == expected


@both
def test_selectors_match_and_names_lead_somewhere(overlay: str) -> None:
    documents = rendered(overlay)
    made = pods(documents)
    labels = {name: pod["metadata"]["labels"] for name, pod in made.items()}
    for name, workload in of_kind(documents, "StatefulSet").items():
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
        service = of_kind(documents, "Service")[workload["spec"]["serviceName"]]
        assert service["spec"]["clusterIP"] == "None"
        # Peers, and executors their driver, come by its name while it is not ready yet.
        assert service["spec"].get("publishNotReadyAddresses") or not name.startswith("tistream-")
        assert service["spec"]["selector"].items() <= labels[name].items()
    # An upgrade applies everything that has no such label first, and then one workload after the other by it.
    labelled = {one["metadata"]["name"]: one for one in documents if NAME in one["metadata"].get("labels", {})}
    assert sorted(labelled) == WORKLOADS
    assert all(
        one["kind"] == "StatefulSet" and one["metadata"]["labels"][NAME] == name for name, one in labelled.items()
    )
    for name, service in of_kind(documents, "Service").items():
        matching = [one for one, has in labels.items() if service["spec"]["selector"].items() <= has.items()]
        assert len(matching) == 1, name
        names = {port["name"] for port in made[matching[0]]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    configs, secrets = of_kind(documents, "ConfigMap"), of_kind(documents, "Secret")
    for name, pod in made.items():
        for kind, referred, optional in references(pod):
            there = configs if kind == "configMap" else secrets
            outside = referred == "tistream-keys" or (overlay == "prod" and referred == "tistream-database")
            assert referred in there or optional or outside, f"{name}: {referred}"


def references(pod: Document) -> Iterator[tuple[str, str, bool]]:
    """(kind, name, optional) of the ConfigMaps and Secrets that a pod uses."""
    for volume in pod["spec"].get("volumes", ()):
        if "configMap" in volume:
            yield "configMap", volume["configMap"]["name"], False
        if "secret" in volume:
            yield "secret", volume["secret"]["secretName"], False
    for container in pod["spec"]["containers"]:
        for entry in container.get("env", ()):
            for kind in ("configMap", "secret"):
                if found := entry.get("valueFrom", {}).get(f"{kind}KeyRef"):
                    yield kind, found["name"], bool(found.get("optional"))
        for source in container.get("envFrom", ()):
            for kind in ("configMap", "secret"):
                if found := source.get(f"{kind}Ref"):
                    yield kind, found["name"], bool(found.get("optional"))


@both
def test_an_upgrade_meets_no_job_that_is_there(overlay: str) -> None:
    """Its template cannot be changed, not even its image: a real API server refuses."""
    for name, job in of_kind(rendered(overlay), "Job").items():
        assert job["spec"]["ttlSecondsAfterFinished"] <= 60, name


@both
def test_every_service_has_a_budget_that_lets_machines_be_emptied(overlay: str) -> None:
    documents = rendered(overlay)
    budgets = of_kind(documents, "PodDisruptionBudget")
    assert sorted(budgets) == WORKLOADS
    for name, budget in budgets.items():
        chosen = budget["spec"]["selector"]["matchLabels"].items()
        assert [one for one, pod in pods(documents).items() if chosen <= pod["metadata"]["labels"].items()] == [name]
        assert budget["spec"]["maxUnavailable"] == 1


@both
def test_what_is_stopped_has_the_time_to_hand_over(overlay: str) -> None:
    documents = rendered(overlay)
    for service in ("sorter", "dispatcher"):
        command = container_of(documents, f"tistream-{service}")["lifecycle"]["preStop"]["exec"]["command"]
        # A shell fills in the name: Kubernetes fills in $(…) in commands of containers, not of hooks.
        found = re.fullmatch(r'exec tistream node drain "\$POD_NAME" --wait (\d+)', command[-1])
        assert command[:-1] == ["sh", "-c"]
        assert found
        settings = settings_class(service)()
        grace = pods(documents)[f"tistream-{service}"]["spec"]["terminationGracePeriodSeconds"]
        assert int(found[1]) + settings.shutdown_limit_seconds < grace
        assert "TISTREAM_URL" in environment(documents, f"tistream-{service}")
    for service in ("api", "meta", "schema"):
        variables = environment(documents, f"tistream-{service}")
        limit = int(variables.get(f"TISTREAM_{service.upper()}__SHUTDOWN_LIMIT_SECONDS", 5))
        assert limit + 5 < pods(documents)[f"tistream-{service}"]["spec"]["terminationGracePeriodSeconds"]


@both
def test_a_pull_of_each_that_may_be_fits_into_memory(overlay: str) -> None:
    documents = rendered(overlay)
    pulls = int(environment(documents, "tistream-api")["TISTREAM_API__PULLS_MAX"])
    limit = bytes_of(container_of(documents, "tistream-api")["resources"]["limits"]["memory"])
    settings = settings_class("api")()
    cache: int = getattr(settings, "cache_bytes")  # noqa: B009 - a field of that service alone
    assert pulls * (32 << 20) + cache + (512 << 20) <= limit


def test_who_is_scaled_has_no_number_of_its_own() -> None:
    documents = rendered("prod")
    scaled = of_kind(documents, "HorizontalPodAutoscaler")
    assert sorted(scaled) == ["tistream-api", "tistream-sorter"]
    for name, scaler in scaled.items():
        assert scaler["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}
        assert "replicas" not in of_kind(documents, "StatefulSet")[name]["spec"]
        assert 2 <= scaler["spec"]["minReplicas"] < scaler["spec"]["maxReplicas"]


def test_prod_has_several_of_everything_on_machines_of_their_own() -> None:
    documents = rendered("prod")
    minimum = {name: one["spec"]["minReplicas"] for name, one in of_kind(documents, "HorizontalPodAutoscaler").items()}
    for name, workload in of_kind(documents, "StatefulSet").items():
        count = minimum.get(name) or workload["spec"]["replicas"]
        assert count == (1 if name == "tistream-schema" else 3), name
        if count > 1:
            assert "podAntiAffinity" in workload["spec"]["template"]["spec"]["affinity"], name
    assert not any("minio" in name or "mariadb" in name for name in pods(documents))


def test_executors_are_what_their_driver_is() -> None:
    documents = rendered("prod")
    variables = environment(documents, "tistream-sorter")
    sorter = container_of(documents, "tistream-sorter")
    settings = SorterSettings(
        spark={
            "master": variables["TISTREAM_SORTER__SPARK__MASTER"],
            "conf": json.loads(variables["TISTREAM_SORTER__SPARK__CONF"]),
        }
    )
    conf = settings.spark.conf
    assert settings.spark.master.startswith("k8s://https://")
    assert conf["spark.kubernetes.container.image"] == sorter["image"] == variables["EXECUTOR_IMAGE"]
    assert conf["spark.driver.host"] == "tistream-sorter-0.tistream-sorter.tistream.svc"
    slots = int(conf["spark.executor.instances"]) * int(conf["spark.executor.cores"])
    assert int(conf["spark.default.parallelism"]) == slots
    assert conf["spark.kubernetes.namespace"] == sorter_namespace(documents)
    assert conf["spark.kubernetes.authenticate.executor.serviceAccountName"] in of_kind(documents, "ServiceAccount")
    ports = {port["name"]: str(port["containerPort"]) for port in sorter["ports"]}
    assert conf["spark.driver.port"] == ports["spark-driver"]
    assert {conf["spark.driver.blockManager.port"], conf["spark.blockManager.port"]} == {ports["spark-blocks"]}
    mounts = {one["mountPath"]: one["name"] for one in sorter["volumeMounts"]}
    folder, _, file = conf["spark.kubernetes.executor.podTemplateFile"].rpartition("/")
    volumes = {one["name"]: one for one in pods(documents)["tistream-sorter"]["spec"]["volumes"]}
    assert file in of_kind(documents, "ConfigMap")[volumes[mounts[folder]]["configMap"]["name"]]["data"]
    [binding] = of_kind(documents, "RoleBinding").values()
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "tistream-sorter", "namespace": "tistream"}]
    # Both reach the bucket by the same secret, or each by the role of its account.
    [executor] = pods(documents)["tistream-executor"]["spec"]["containers"]
    assert executor["envFrom"] == sorter["envFrom"]
    for account in of_kind(documents, "ServiceAccount").values():
        assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].endswith(account["metadata"]["name"])


def test_prod_without_executors_is_what_the_document_says(tmp_path: Path) -> None:
    shutil.copytree(K8S.parent, tmp_path, dirs_exist_ok=True)
    prod = tmp_path / "k8s" / "overlays" / "prod"
    text = (prod / "kustomization.yaml").read_text()
    without = text.replace("  - ../../components/spark-on-k8s\n", "").partition("# Executors run")[0]
    (prod / "kustomization.yaml").write_text(without)
    *roles, executor = (prod / "roles.yaml").read_text().split("---\n")
    assert "tistream-executor" in executor
    (prod / "roles.yaml").write_text("---\n".join(roles))
    documents = rendered(str(prod))
    assert environment(documents, "tistream-sorter")["TISTREAM_SORTER__SPARK__MASTER"] == "local[2]"
    assert not of_kind(documents, "Role")
    assert not any(pod["spec"]["automountServiceAccountToken"] for pod in pods(documents).values())


def test_executors_find_the_keys_of_the_object_store_also_over_dev(tmp_path: Path) -> None:
    """kustomize does not look into their template: what it names must be called just so."""
    shutil.copytree(K8S, tmp_path / "k8s")
    both_of_them = tmp_path / "k8s" / "overlays" / "both"
    both_of_them.mkdir()
    (both_of_them / "kustomization.yaml").write_text(
        "namespace: tistream\nresources: [../dev]\ncomponents: [../../components/spark-on-k8s]\n"
    )
    documents = rendered(str(both_of_them))
    named = {name for kind, name, _ in references(pods(documents)["tistream-executor"]) if kind == "secret"}
    assert named
    assert named <= of_kind(documents, "Secret").keys()
    for name in ("minio", "to-minio"):
        policy = json.dumps(of_kind(documents, "NetworkPolicy")[name])
        assert "tistream-executor" in policy, name


def sorter_namespace(documents: list[Document]) -> str:
    return str(of_kind(documents, "StatefulSet")["tistream-sorter"]["metadata"]["namespace"])
