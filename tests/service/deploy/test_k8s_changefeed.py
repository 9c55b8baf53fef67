"""The component `changefeed` on an overlay: its workers have valid settings, are confined as the others are, and the
secrets of tenants are opened by them alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from support.manifests import K8S, Document, environment, of_kind, pods, rendered_folder
from tistream.service.settings import NESTED
from tistream_changefeed.settings import ChangefeedSettings

NAME = "tistream-changefeed"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    """The overlay `dev` with the component, and one host for feeds."""
    copied = tmp_path_factory.mktemp("deploy") / "deploy"
    shutil.copytree(K8S.parent, copied)
    overlay = copied / "k8s" / "overlays" / "dev" / "kustomization.yaml"
    stated = yaml.safe_load(overlay.read_text())
    stated.setdefault("components", []).append("../../components/changefeed")
    stated.setdefault("configMapGenerator", []).append({"name": NAME, "literals": ["sink-hosts=kafka.example"]})
    overlay.write_text(yaml.safe_dump(stated))
    return rendered_folder(overlay.parent)


def test_the_service_has_the_settings_of_its_class(documents: list[Document]) -> None:
    prefix = f"TISTREAM_CHANGEFEED{NESTED}"
    given = {
        key.removeprefix(prefix): value for key, value in environment(documents, NAME).items() if key.startswith(prefix)
    }
    tls = {key.removeprefix(f"TLS{NESTED}").lower(): value for key, value in given.items() if f"TLS{NESTED}" in key}
    own = {key.lower(): value for key, value in given.items() if f"TLS{NESTED}" not in key}
    settings = ChangefeedSettings(tls=tls, **own)
    assert settings.node == f"{NAME}-0"
    assert settings.url == f"https://{NAME}-0.{NAME}.tistream.svc:8008"
    assert settings.hosts == ("kafka.example",)
    files = (settings.service_key_file, settings.metrics_token_file, settings.secrets_key_file)
    assert [str(path) for path in files] == ["/keys/service.key", "/keys/metrics.token", "/keys/secrets.key"]
    assert settings.tls.client_ca_file == Path("/keys/ca.crt")


def test_workers_alone_can_open_secrets_and_api_servers_seal_them(documents: list[Document]) -> None:
    having = {
        name: {item["key"] for item in volume["secret"].get("items", ())}
        for name, pod in pods(documents).items()
        for volume in pod["spec"].get("volumes", ())
        if volume["name"] == "keys" and "items" in volume["secret"]
    }
    assert {name for name, keys in having.items() if "secrets.key" in keys} == {NAME}
    assert {name for name, keys in having.items() if "secrets.pub" in keys} == {"tistream-api"}
    assert environment(documents, "tistream-api")["TISTREAM_API__SECRETS_PUBLIC_FILE"] == "/keys/secrets.pub"


def test_the_pod_is_confined_as_the_others_are(documents: list[Document]) -> None:
    made, schema = pods(documents)[NAME], pods(documents)["tistream-schema"]
    assert made["metadata"]["labels"]["app.kubernetes.io/part-of"] == "tistream"
    assert made["spec"]["securityContext"] == schema["spec"]["securityContext"]
    mine, other = made["spec"]["containers"][0], schema["spec"]["containers"][0]
    for part in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "envFrom"):
        assert mine[part] == other[part]
    assert {one["name"] for one in made["spec"]["volumes"]} == {one["name"] for one in mine["volumeMounts"]}
    assert of_kind(documents, "ServiceAccount")[NAME]["automountServiceAccountToken"] is False
    budget = of_kind(documents, "PodDisruptionBudget")[NAME]["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": NAME}}}
    assert of_kind(documents, "StatefulSet")[NAME]["spec"]["replicas"] == 2


def test_a_worker_that_is_stopped_has_the_time_to_hand_its_feeds_over(documents: list[Document]) -> None:
    pod = pods(documents)[NAME]["spec"]
    *shell, command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert shell == ["sh", "-c"]
    assert command == 'tistream node drain "$POD_NAME" --wait 30; exec sleep 3'
    assert 30 + 3 + ChangefeedSettings().shutdown_limit_seconds < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("policy", "direction", "peer", "port"),
    [
        (NAME, "ingress", "tistream-api", 8008),
        ("api-to-changefeed", "egress", NAME, 8008),
        (NAME, "egress", "tistream-meta", 8001),
        ("changefeed-to-meta", "ingress", NAME, 8001),
        (NAME, "egress", "tistream-sorter", 8004),
        ("changefeed-to-sorter", "ingress", NAME, 8004),
        (NAME, "egress", "tistream-schema", 8002),
        ("changefeed-to-schema", "ingress", NAME, 8002),
    ],
)
def test_each_flow_stands_twice(documents: list[Document], policy: str, direction: str, peer: str, port: int) -> None:
    rules = of_kind(documents, "NetworkPolicy")[policy]["spec"][direction]
    side = {"ingress": "from", "egress": "to"}[direction]
    flows = [
        (one["podSelector"]["matchLabels"]["app.kubernetes.io/name"], allowed["port"])
        for rule in rules
        for one in rule[side]
        for allowed in rule["ports"]
    ]
    assert (peer, port) in flows


def test_workers_alone_reach_brokers_and_never_the_machines_own_role(documents: list[Document]) -> None:
    spec = of_kind(documents, "NetworkPolicy")["changefeed-to-brokers"]["spec"]
    assert spec["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": NAME}
    [rule] = spec["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}}]
    assert [one["port"] for one in rule["ports"]] == [9092, 9093, 9094]


def test_in_dev_it_reaches_the_bucket(documents: list[Document]) -> None:
    policies = of_kind(documents, "NetworkPolicy")
    [chosen] = policies["to-minio"]["spec"]["podSelector"]["matchExpressions"]
    [let_in] = policies["minio"]["spec"]["ingress"][0]["from"]
    assert NAME in chosen["values"]
    assert NAME in let_in["podSelector"]["matchExpressions"][0]["values"]
