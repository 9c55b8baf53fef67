"""The component `agent` on an overlay: the service has valid settings, and is confined as the others are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from support.manifests import K8S, Document, of_kind, pods, rendered_folder
from tistream.service.settings import NESTED, TlsSettings
from tistream_agent.connecting.manifests import kubernetes_manifest
from tistream_agent.settings import AgentSettings, UpstreamTls

NAME = "tistream-agent"
PREFIX = f"TISTREAM_AGENT{NESTED}"


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


def test_every_variable_is_a_setting_and_the_meta_servers_give_the_territories(documents: list[Document]) -> None:
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
    assert {name.rpartition("__")[2] for name in of_operator} == {"ca_file", "cert_file", "key_file"}
    assert all(source.get("optional") for source in of_operator.values())
    assert not {"pd", "cluster", "tenant"} & set(asked), "so it is a node, and two are no contest"
    assert asked["port"]["value"] == str(AgentSettings().port)
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
    assert of_kind(documents, "StatefulSet")[NAME]["spec"]["replicas"] == 2
    assert of_kind(documents, "ServiceAccount")[NAME]["automountServiceAccountToken"] is False
    assert of_kind(documents, "PodDisruptionBudget")[NAME]["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": NAME
    }


def test_it_reaches_pd_and_tikv_and_no_service_reaches_it(documents: list[Document]) -> None:
    spec = of_kind(documents, "NetworkPolicy")[NAME]["spec"]
    assert [port["port"] for rule in spec["egress"] for port in rule["ports"]] == [2379, 20160]
    assert not spec.get("ingress")


def test_the_manifest_that_connect_prints_is_confined_and_watched_as_the_component_is(
    documents: list[Document],
) -> None:
    made, budget = json.loads(kubernetes_manifest({f"{PREFIX}PD": "pd:2379"}, "agent-1"))["items"]
    pod, component = made["spec"]["template"]["spec"], pods(documents)[NAME]["spec"]
    assert pod["securityContext"] == component["securityContext"]
    [mine], [other] = pod["containers"], component["containers"]
    for part in ("args", "securityContext"):
        assert mine[part] == other[part]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert mine[probe]["exec"] == other[probe]["exec"]
    assert {one["name"]: one["value"] for one in mine["env"]}[f"{PREFIX}PD"] == "pd:2379"
    assert made["spec"]["replicas"] == 1, "two would fence each other"
    assert budget["spec"]["selector"] == made["spec"]["selector"]
