"""The Kubernetes manifests as kustomize renders them, and the tools for that: found, or built once and kept."""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support import kept
from support.not_run import not_run

ROOT = Path(__file__).parents[2]
K8S = ROOT / "deploy" / "k8s"
OVERLAYS = ("dev", "prod")
KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"

Document = dict[str, Any]


@functools.cache
def kustomize() -> tuple[str, ...]:
    """The command that renders a folder."""
    if found := shutil.which("kustomize"):
        return (found, "build")
    if shutil.which("kubectl"):
        return ("kubectl", "kustomize")
    try:
        return (kept.built(KUSTOMIZE, "kustomize-v5.7.1"), "build")
    except kept.NotHad as reason:
        not_run(f"no kustomize, no kubectl: {reason}")


@functools.cache
def promtool() -> str:
    """Prometheus' own checker of rules: found, or taken out of Debian's package."""
    own = kept.folder() / "promtool"
    with kept.alone("promtool"):
        if own.exists():
            return str(own)
        if found := shutil.which("promtool"):
            return found
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            not_run("no promtool, and no Debian to get it from")
        folder = kept.folder() / "prometheus"
        folder.mkdir(exist_ok=True)
        fetched = subprocess.run(
            ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, check=False
        )
        packages = sorted(folder.glob("prometheus_*.deb"))
        if not packages:
            not_run(f"no promtool: {fetched.stderr[-300:]}")
        subprocess.run(["dpkg-deb", "-x", packages[-1], folder], check=True)
        (folder / "usr" / "bin" / "promtool").replace(own)
        shutil.rmtree(folder)
    return str(own)


@functools.cache
def _rendered(folder: str) -> list[Document]:
    done = subprocess.run([*kustomize(), folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def rendered_folder(folder: Path) -> list[Document]:
    """The documents of any overlay; fresh ones, to be changed at will."""
    return copy.deepcopy(_rendered(str(folder)))


def rendered(overlay: str) -> list[Document]:
    """The documents of an overlay; fresh ones, to be changed at will."""
    return copy.deepcopy(_rendered(str(K8S / "overlays" / overlay)))


def of_kind(documents: list[Document], *kinds: str) -> dict[str, Document]:
    """By name."""
    found = [one for one in documents if one["kind"] in kinds]
    named = {one["metadata"]["name"]: one for one in found}
    assert len(named) == len(found)
    return named


def executor_template(documents: list[Document]) -> Document | None:
    """The pod template of Spark's executors, where there is one."""
    for name, config in of_kind(documents, "ConfigMap").items():
        if name.startswith("tistream-executor"):
            template: Document = yaml.safe_load(config["data"]["executor.yaml"])
            return template
    return None


def pods(documents: list[Document]) -> dict[str, Document]:
    """Every pod that is made, as {metadata, spec}, by the name of what makes it."""
    found = {
        name: one["spec"]["template"] for name, one in of_kind(documents, "StatefulSet", "Deployment", "Job").items()
    }
    if (executor := executor_template(documents)) is not None:
        found["tistream-executor"] = executor
    return found


def environment(documents: list[Document], workload: str) -> dict[str, str]:
    """The variables of a workload's container, those of ConfigMaps and `$(…)` filled in; values of secrets and of the
    pod itself stand as they would in a pod."""
    spec = pods(documents)[workload]["spec"]
    fields = {"metadata.name": f"{workload}-0", "metadata.namespace": "tistream", "status.podIP": "10.0.0.7"}
    configs = of_kind(documents, "ConfigMap")
    found: dict[str, str] = {}
    for entry in spec["containers"][0].get("env", ()):
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            value = fields[source["fieldRef"]["fieldPath"]]
        elif "configMapKeyRef" in source:
            wanted, data = source["configMapKeyRef"], configs[source["configMapKeyRef"]["name"]]["data"]
            if wanted.get("optional") and wanted["key"] not in data:
                continue  # then the container has no such variable
            value = data[wanted["key"]]
        elif "secretKeyRef" in source:
            value = "mysql+pymysql://tistream:secret@database/tistream"
        else:
            value = entry["value"]
            for name, before in found.items():  # as Kubernetes does it: only what was named before
                value = value.replace(f"$({name})", before)
        found[entry["name"]] = value
    return found
