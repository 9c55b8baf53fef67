"""Alerts rest on metrics that are really exported, and Prometheus understands them."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from support.app_surfaces import SURFACES
from support.manifests import ROOT, of_kind, promtool, rendered

MONITORING = ROOT / "deploy" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
# Of Prometheus itself and of the kubelet.
OUTSIDE = {"up", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}
EXPORTED = frozenset(name for surface in SURFACES.values() for name in surface.metrics)


def rules() -> dict[str, dict[str, str]]:
    found = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    named = {rule["alert"]: rule for rule in found}
    assert len(named) == len(found)
    return named


def metrics_of(expression: str) -> set[str]:
    """The names of metrics in an expression of PromQL; those chosen by __name__ too."""
    chosen = set()
    for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
        chosen |= {name for name in EXPORTED if re.fullmatch(pattern, name)}
        assert chosen, f"nothing is called {pattern}"
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", expression)
    bare = re.sub(r"\b(by|on)\s*\([^)]*\)", " ", bare)
    functions = r"\b(max|min|sum|rate|increase|delta|changes|histogram_quantile|vector|and|or|offset|\d+\w*)\b"
    return chosen | set(re.findall(r"[a-z_][a-z0-9_]*", re.sub(functions, " ", bare)))


@pytest.mark.parametrize("alert", sorted(rules()))
def test_every_metric_of_an_alert_is_exported(alert: str) -> None:
    named = metrics_of(rules()[alert]["expr"])
    assert named
    assert named - EXPORTED - OUTSIDE == set()


def test_a_metric_that_is_not_exported_is_noticed() -> None:
    assert metrics_of("sum by (pod) (rate(tistream_nothing_total[5m])) > 0.1") - EXPORTED == {"tistream_nothing_total"}
    assert metrics_of('max(tistream_meta_stores{read="no"} and on (instance) tistream_meta_owner == 1) > 0') == {
        "tistream_meta_stores",
        "tistream_meta_owner",
    }


@pytest.mark.parametrize("alert", sorted(rules()))
def test_every_alert_says_how_bad_it_is_and_what_happened(alert: str) -> None:
    rule = rules()[alert]
    assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"})  # type: ignore[comparison-overlap]
    assert rule["annotations"].keys() == {"summary"}  # type: ignore[attr-defined]


def test_prometheus_takes_the_rules_and_they_fire_when_they_should() -> None:
    for command in (["check", "rules", ALERTS], ["test", "rules", MONITORING / "alerts_test.yaml"]):
        done = subprocess.run([promtool(), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_scales_is_exported_and_named_to_the_adapter() -> None:
    adapter = yaml.safe_load((MONITORING / "prometheus-adapter.yaml").read_text())
    given = {}
    for kind in ("rules", "externalRules"):
        for rule in adapter[kind]:
            series = rule["seriesQuery"].partition("{")[0]
            assert series in EXPORTED
            given[kind, rule.get("name", {}).get("as", series)] = series
    wanted = set()
    for scaler in of_kind(rendered("prod"), "HorizontalPodAutoscaler").values():
        for metric in scaler["spec"]["metrics"]:
            kind, part = {"External": ("externalRules", "external"), "Pods": ("rules", "pods")}[metric["type"]]
            wanted.add((kind, metric[part]["metric"]["name"]))
    assert wanted == set(given)
