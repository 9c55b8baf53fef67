"""scripts/upgrade: the documented order, and nothing beyond a step that failed. kubectl is one that writes down what it
is asked."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.manifests import ROOT
from support.settings_classes import SERVICES

KINDS = ["api", "schema", "meta", "dispatcher", "sorter"]
WITH_INGEST = [*KINDS[:-1], "ingest", "sorter"]
WITH_COMPONENTS = [*KINDS[:-1], "changefeed", "ingest", "sorter"]
KUBECTL = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
*"rollout status statefulset/tistream-$FAILS "*) exit 1 ;;
kustomize*) cat "$RENDERED" ;;
esac
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.calls, self.overlay = folder / "calls", folder / "overlay"
        self.overlay.mkdir()
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").write_text(KUBECTL)
        (folder / "bin" / "kubectl").chmod(0o755)
        self.rendered = folder / "rendered"
        self.rendered.write_text("image: registry.example/tistream:1.2.3\n")
        self.path = f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"

    def upgrade(self, *arguments: str, fails: str = "none") -> tuple[int, list[str], str]:
        """Status, what kubectl was asked, and what the script said."""
        environment = {
            "PATH": self.path,
            "CALLS": str(self.calls),
            "FAILS": fails,
            "RENDERED": str(self.rendered),
        }
        command = [ROOT / "scripts" / "upgrade", *arguments, self.overlay]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        return done.returncode, calls, done.stdout + done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def steps(cluster: Cluster, *kinds: str) -> list[str]:
    asked = [
        f"kustomize {cluster.overlay}",
        f"apply -k {cluster.overlay} -l !app.kubernetes.io/name",
    ]
    for kind in kinds:
        asked.append(f"apply -k {cluster.overlay} -l app.kubernetes.io/name=tistream-{kind}")
        asked.append(f"-n tistream rollout status statefulset/tistream-{kind} --timeout 15m")
    return asked


def test_each_kind_is_begun_once_the_one_before_is_ready(cluster: Cluster) -> None:
    status, calls, _ = cluster.upgrade("-b")
    assert (status, calls) == (0, steps(cluster, *KINDS))


def test_ingest_is_upgraded_before_the_sorters_whose_manifests_it_reads(cluster: Cluster) -> None:
    parts = sorted((ROOT / "deploy" / "k8s" / "components" / "ingest").glob("*.yaml"))
    cluster.rendered.write_text("---\n".join(path.read_text() for path in parts))
    status, calls, _ = cluster.upgrade("-b")
    assert (status, calls) == (0, steps(cluster, *WITH_INGEST))


def test_an_overlay_with_every_component_is_upgraded_readers_first(cluster: Cluster) -> None:
    components = ROOT / "deploy" / "k8s" / "components"
    parts = [path for name in ("ingest", "changefeed") for path in sorted((components / name).glob("*.yaml"))]
    cluster.rendered.write_text("---\n".join(path.read_text() for path in parts))
    status, calls, _ = cluster.upgrade("-b")
    assert (status, calls) == (0, steps(cluster, *WITH_COMPONENTS))


def test_an_overlay_that_only_names_ingest_in_a_policy_has_none(cluster: Cluster) -> None:
    """`kubectl apply` fails where a selector finds nothing."""
    cluster.rendered.write_text((ROOT / "deploy/k8s/overlays/dev/networkpolicies.yaml").read_text())
    assert "tistream-ingest" in cluster.rendered.read_text()
    _, calls, _ = cluster.upgrade("-b")
    assert calls == steps(cluster, *KINDS)


def test_the_order_is_that_of_the_document() -> None:
    text = (ROOT / "docs" / "operations" / "upgrade-backup.md").read_text()
    section = text[text.index("## Upgrade") : text.index("## Backup and restore")]
    found = re.findall(r"`(?:kubectl apply -k OVERLAY -l app\.kubernetes\.io/name=)?tistream-(\w+)`", section)
    assert found[: len(WITH_COMPONENTS)] == WITH_COMPONENTS
    assert {f"tistream-{kind}" for kind in WITH_COMPONENTS} == {f"tistream-{service}" for service in SERVICES}


def test_what_comes_after_a_kind_that_does_not_get_ready_is_not_touched(cluster: Cluster) -> None:
    status, calls, said = cluster.upgrade("-b", fails="meta")
    assert (status, calls) == (1, steps(cluster, "api", "schema", "meta"))
    assert "tistream-meta is not ready" in said


def test_nothing_is_done_before_somebody_says_that_there_is_a_backup(cluster: Cluster) -> None:
    status, calls, said = cluster.upgrade()
    assert (status, calls) == (2, [])
    assert "back up the meta database first" in said


def test_all_sorters_start_anew_where_manifests_have_a_new_version(cluster: Cluster) -> None:
    _, calls, _ = cluster.upgrade("-b", "-m")
    assert calls[-2:] == [
        "-n tistream delete pod -l app.kubernetes.io/name=tistream-sorter",
        "-n tistream rollout status statefulset/tistream-sorter --timeout 15m",
    ]


def test_a_dry_run_says_all_and_does_nothing(cluster: Cluster) -> None:
    status, calls, said = cluster.upgrade("-b", "-d", "-m")
    assert (status, calls) == (0, [f"kustomize {cluster.overlay}"]), "it renders the overlay, and applies nothing"
    assert len(re.findall(r"^\+ kubectl ", said, re.MULTILINE)) == 13


def test_images_that_only_a_tag_names_are_refused_if_asked(cluster: Cluster) -> None:
    status, calls, said = cluster.upgrade("-b", "-p")
    assert (status, calls) == (1, [f"kustomize {cluster.overlay}"])
    assert "registry.example/tistream:1.2.3 has no digest" in said
