"""The component `agent` on an overlay: the service has valid settings, and is confined as the others are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from support.manifests import K8S, Document, of_kind, pods, rendered_folder
from tistream.service.settings import NESTED, TlsSettings
from tistream_agent.settings import AgentSettings, UpstreamTls

NAME = "tistream-agent"
PREFIX = f"TISTREAM_AGENT{NESTED}"
OPERATORS = {"pd": "pd:2379", "cluster": "7", "tenant": "shop"}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    """The overlay `dev` with the component."""
    copied = tmp_path_factory.mktemp("deploy") / "deploy"
    shutil.copytree(K8S.parent, copied)
    overlay = copied / "k8s" / "overlays" / "dev" / "kustomization.yaml"
    stated = yaml.safe_load(overlay.read_text())
    stated.setdefault("components", []).append("../../components/agent")
    overlay.write_text(yaml.safe_dump(stated))
    return rendered_folder(overlay.parent)


def test_every_variable_is_a_setting_and_the_operator_states_the_cluster(documents: list[Document]) -> None:
    [container] = pods(documents)[NAME]["spec"]["containers"]
    asked = {}
    for variable in container["env"]:
        if (name := variable["name"]).startswith(PREFIX):
            asked[name.removeprefix(PREFIX).lower()] = variable
    groups: dict[str, type[BaseModel]] = {"tls__": TlsSettings, "upstream_tls__": UpstreamTls}
    for name in asked:
        group = next((group for group in groups if name.startswith(group)), "")
        fields = groups[group].model_fields if group else AgentSettings.model_fields
        assert name.removeprefix(group) in fields, name
    of_operator = {
        name: source
        for name, variable in asked.items()
        if (source := variable.get("valueFrom", {}).get("configMapKeyRef")) and source["name"] == NAME
    }
    assert {name for name, source in of_operator.items() if not source.get("optional")} == set(OPERATORS)
    assert asked["port"]["value"] == str(AgentSettings(**OPERATORS).port)  # type: ignore[arg-type]
    assert Path(asked["service_key_file"]["value"]).parent == Path("/keys")


def test_the_pod_is_confined_as_the_others_are(documents: list[Document]) -> None:
    made, schema = pods(documents)[NAME], pods(documents)["tistream-schema"]
    assert made["metadata"]["labels"]["app.kubernetes.io/part-of"] == "tistream"
    assert made["spec"]["securityContext"] == schema["spec"]["securityContext"]
    mine, other = made["spec"]["containers"][0], schema["spec"]["containers"][0]
    for part in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "envFrom"):
        assert mine[part] == other[part]
    mounts = {one["name"]: one for one in mine["volumeMounts"]}
    assert {one["name"] for one in made["spec"]["volumes"]} == set(mounts)
    assert all(mounts[name]["readOnly"] for name in ("keys", "upstream"))
    assert of_kind(documents, "StatefulSet")[NAME]["spec"]["replicas"] == 1
    assert of_kind(documents, "ServiceAccount")[NAME]["automountServiceAccountToken"] is False
    assert of_kind(documents, "PodDisruptionBudget")[NAME]["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": NAME
    }


def test_it_reaches_pd_and_tikv_and_no_service_reaches_it(documents: list[Document]) -> None:
    spec = of_kind(documents, "NetworkPolicy")[NAME]["spec"]
    assert [port["port"] for rule in spec["egress"] for port in rule["ports"]] == [2379, 20160]
    assert not spec.get("ingress")
