"""The component `ingest` on an overlay: the service has valid settings, and is confined as the others are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from support.manifests import K8S, Document, environment, of_kind, pods, rendered_folder
from support.settings_classes import SERVICES
from tistream.service.settings import NESTED
from tistream_ingest.settings import IngestSettings

NAME = "tistream-ingest"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    """The overlay `dev` with the component."""
    copied = tmp_path_factory.mktemp("deploy") / "deploy"
    shutil.copytree(K8S.parent, copied)
    overlay = copied / "k8s" / "overlays" / "dev" / "kustomization.yaml"
    stated = yaml.safe_load(overlay.read_text())
    stated.setdefault("components", []).append("../../components/ingest")
    overlay.write_text(yaml.safe_dump(stated))
    return rendered_folder(overlay.parent)


def test_the_service_has_the_settings_of_its_class(documents: list[Document]) -> None:
    prefix = f"TISTREAM_INGEST{NESTED}"
    given = {
        key.removeprefix(prefix): value
        for key, value in environment(documents, NAME).items()
        if key.startswith("TISTREAM_")
    }
    tls = {key.removeprefix(f"TLS{NESTED}").lower(): value for key, value in given.items() if f"TLS{NESTED}" in key}
    spark = {"master": given.pop(f"SPARK{NESTED}MASTER")}
    own = {key.lower(): value for key, value in given.items() if f"TLS{NESTED}" not in key}
    settings = IngestSettings(tls=tls, spark=spark, **own)
    assert settings.node == f"{NAME}-0"
    assert settings.url == f"https://{NAME}-0.{NAME}.tistream.svc:8006"
    assert settings.spark.master == "local[2]"
    assert {path.parent for path in (settings.service_key_file, settings.metrics_token_file)} == {Path("/keys")}


def test_the_pod_is_confined_as_the_others_are(documents: list[Document]) -> None:
    made, schema = pods(documents)[NAME], pods(documents)["tistream-schema"]
    assert made["metadata"]["labels"]["app.kubernetes.io/part-of"] == "tistream"
    assert made["spec"]["securityContext"] == schema["spec"]["securityContext"]
    mine, other = made["spec"]["containers"][0], schema["spec"]["containers"][0]
    for part in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "envFrom"):
        assert mine[part] == other[part]
    assert {one["name"] for one in made["spec"]["volumes"]} == {one["name"] for one in mine["volumeMounts"]}
    assert of_kind(documents, "ServiceAccount")[NAME]["automountServiceAccountToken"] is False
    assert of_kind(documents, "PodDisruptionBudget")[NAME]["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": NAME
    }


@pytest.mark.parametrize(
    ("policy", "direction", "peer", "port"),
    [
        (NAME, "ingress", "tistream-api", 8006),
        ("api-to-ingest", "egress", NAME, 8006),
        (NAME, "egress", "tistream-meta", 8001),
        ("ingest-to-meta", "ingress", NAME, 8001),
        (NAME, "egress", "tistream-sorter", 8004),
        ("ingest-to-sorter", "ingress", NAME, 8004),
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


@pytest.mark.parametrize("file", ["podmonitor.yaml", "networkpolicy.yaml"])
def test_prometheus_reads_every_service_and_is_let_in(file: str) -> None:
    """Of a service that an overlay has not, the selector finds no pod."""
    document = yaml.safe_load((K8S / "components" / "prometheus" / file).read_text())
    spec = document["spec"]
    [selected] = (spec.get("selector") or spec["podSelector"])["matchExpressions"]
    assert set(selected["values"]) == {"tistream-agent", *(f"tistream-{service}" for service in SERVICES)}
