"""Alerts rest on metrics that are really exported, and Prometheus understands them."""

from __future__ import annotations

import functools
import subprocess
from collections import Counter

import pytest
import yaml

from support.manifests import ROOT, of_kind, promtool, rendered
from support.promql import OUTSIDE, exported, metrics_of, strange_labels

MONITORING = ROOT / "deploy" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
CASES = MONITORING / "alerts_test.yaml"


@functools.cache
def rules() -> dict[str, dict[str, str]]:
    found = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    named = {rule["alert"]: rule for rule in found}
    assert len(named) == len(found)
    return named


@pytest.mark.parametrize("alert", sorted(rules()))
def test_every_metric_of_an_alert_is_exported(alert: str) -> None:
    named = metrics_of(rules()[alert]["expr"])
    assert named
    assert named - exported().keys() - OUTSIDE == set()
    assert strange_labels(rules()[alert]["expr"]) == set()


def test_a_label_that_is_not_exported_is_noticed() -> None:
    assert strange_labels('sum by (loops) (rate(tistream_loop_errors_total{loop="lag"}[5m]))') == {"by (loops)"}
    assert strange_labels('tistream_meta_stores{readers="no"} and on (instance) tistream_meta_owner == 1') == {
        "tistream_meta_stores{readers}"
    }


def test_a_metric_that_is_not_exported_is_noticed() -> None:
    assert metrics_of("sum by (pod) (rate(tistream_nothing_total[5m])) > 0.1") - exported().keys() == {
        "tistream_nothing_total"
    }
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
    for command in (["check", "rules", ALERTS], ["test", "rules", CASES]):
        done = subprocess.run([promtool(), *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def cases(*, firing: bool) -> Counter[str]:
    """How many cases of alerts_test.yaml each alert has in which it fires, or does not."""
    document = yaml.safe_load(CASES.read_text())
    assert document["rule_files"] == [ALERTS.name]
    checks = [check for test in document["tests"] for check in test["alert_rule_test"]]
    return Counter(check["alertname"] for check in checks if bool(check["exp_alerts"]) == firing)


@pytest.mark.parametrize("alert", sorted(rules()))
def test_every_alert_has_a_case_in_which_it_fires(alert: str) -> None:
    assert cases(firing=True)[alert] > 0


def test_no_case_is_of_an_alert_that_is_not_there() -> None:
    """promtool takes those: what is not there never fires."""
    assert cases(firing=True).keys() | cases(firing=False).keys() <= rules().keys()


def test_what_scales_is_exported_and_named_to_the_adapter() -> None:
    adapter = yaml.safe_load((MONITORING / "prometheus-adapter.yaml").read_text())
    given = {}
    for kind in ("rules", "externalRules"):
        for rule in adapter[kind]:
            series = rule["seriesQuery"].partition("{")[0]
            assert series in exported()
            given[kind, rule.get("name", {}).get("as", series)] = series
    wanted = set()
    for scaler in of_kind(rendered("prod"), "HorizontalPodAutoscaler").values():
        for metric in scaler["spec"]["metrics"]:
            kind, part = {"External": ("externalRules", "external"), "Pods": ("rules", "pods")}[metric["type"]]
            wanted.add((kind, metric[part]["metric"]["name"]))
    assert wanted == set(given)
