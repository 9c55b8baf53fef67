"""Grafana's dashboard rests on metrics and labels that are really exported, and shows every metric of ours."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from support.manifests import ROOT, of_kind, rendered
from support.promql import OUTSIDE, exported, labels_of, metrics_of, strange_labels

DASHBOARDS = ROOT / "deploy" / "monitoring" / "dashboards"
BOARDS: dict[str, dict[str, Any]] = {path.name: json.loads(path.read_text()) for path in DASHBOARDS.glob("*.json")}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
# Of no use to look at: what is counted to be added up elsewhere, and what only an alert is about.
NOT_SHOWN = {"tistream_meta_route_version", "tistream_loop_runs_total"}


@pytest.mark.parametrize("panel", PANELS)
def test_every_metric_and_label_of_a_panel_is_exported(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        named = metrics_of(target["expr"])
        assert named
        assert named - exported().keys() - OUTSIDE == set()
        assert strange_labels(target["expr"]) == set()


@pytest.mark.parametrize("panel", PANELS)
def test_a_legend_names_labels_that_are_left(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        grouped = re.findall(r"\bby\s*\(([^)]*)\)", target["expr"])
        left = (
            set(re.findall(r"\w+", grouped[0])) if grouped else set().union(*map(labels_of, metrics_of(target["expr"])))
        )
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert shown <= left
        assert {label for label in left if grouped} - {"le"} <= shown, "series that look the same"


def test_every_metric_of_ours_is_shown_or_said_not_to_be() -> None:
    shown = {name for panel in PANELS for target in panel.values[0]["targets"] for name in metrics_of(target["expr"])}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported() if name.startswith("tistream_")}
    ours = {name for name in ours if not name.endswith("_created")}
    assert ours - families == NOT_SHOWN


def test_panels_lie_beside_each_other_and_ids_are_theirs_alone() -> None:
    for board in BOARDS.values():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        taken: dict[tuple[int, int], str] = {}
        for panel in board["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_compose_and_kubernetes_give_the_dashboards_to_grafana() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]["volumes"]
    assert "./deploy/monitoring/dashboards:/etc/grafana/dashboards:ro" in compose
    provider = yaml.safe_load((ROOT / "deploy/compose/grafana/dashboards/tistream.yml").read_text())
    assert [one["options"]["path"] for one in provider["providers"]] == ["/etc/grafana/dashboards"]
    given = of_kind(rendered("prod"), "ConfigMap")["tistream-dashboards"]
    assert given["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert {name: json.loads(text) for name, text in given["data"].items()} == BOARDS
