"""Values that alerts, their tests and dashboards ask labels for are values that services really give."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from support.app_surfaces import surfaces
from support.manifests import K8S, ROOT
from tistream.service.observe.store_metrics import measured
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.sorter import Hold
from tistream_meta.metrics import MetaMetrics
from tistream_sorter.metrics import HoldCollector

MONITORING = ROOT / "deploy" / "monitoring"
FOLDERS = ("shared", "services", "simulator", "tools")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("**/*.py"))
# Whose values nobody can list: statuses of HTTP, who runs the platform where, names of metrics (support.promql).
FREE = {"status", "namespace", "__name__"}
# What alerts_test.yaml tells apart by, and no expression asks for.
TOLD_APART = {"pod", "instance", "le", "invariant", "call", "cluster", "tenant", "feed", "shard"}


def loop_names(source: str) -> set[str]:
    """The names of all `Loop(…)` that the source makes. Each has to be a literal: ValueError."""
    if "Loop(" not in source:
        return set()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call for call in calls if re.fullmatch(r"(\w+\.)*Loop", ast.unparse(call.func))]
    named = [[*call.args[:1], *(each.value for each in call.keywords if each.arg == "name")] for call in made]
    return {ast.literal_eval(name) for [name] in named}


def names_gone_through(source: str, variable: str) -> set[str]:
    """The literals of all `for variable in (…)`."""
    if f"for {variable} in" not in source:
        return set()
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For)]
    named = [loop.iter for loop in loops if isinstance(loop.target, ast.Name) and loop.target.id == variable]
    return {name for found in named if isinstance(found, ast.Tuple) for name in ast.literal_eval(found)}


def _told() -> dict[str, set[str]]:
    """Of collectors that tell every value from the beginning: by label."""
    registry = CollectorRegistry()
    meta = MetaMetrics(registry)
    meta.count_nodes(())
    meta.count_stores(())
    meta.count_feeds((), ())
    measured(MemoryObjectStore(), registry)
    registry.register(HoldCollector(lambda: ()))
    found: dict[str, set[str]] = defaultdict(set)
    for family in registry.collect():
        for sample in family.samples:
            for label, value in sample.labels.items():
                found[label].add(value)
    return found


def _jobs() -> set[str]:
    """As Kubernetes and compose name them."""
    monitor = yaml.safe_load((K8S / "components" / "prometheus" / "podmonitor.yaml").read_text())
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())
    [pods] = monitor["spec"]["selector"]["matchExpressions"]
    return {*pods["values"], *(job["job_name"] for job in compose["scrape_configs"])}


@functools.cache
def values() -> dict[str, set[str]]:
    """{label: its values}, read off the sources and the apps."""
    told = _told()
    texts = [path.read_text() for path in SOURCES]
    return {
        "loop": set().union(*map(loop_names, texts)),
        "stage": told["stage"].union(*(names_gone_through(text, "stage") for text in texts)),
        "kind": told["kind"],
        "state": told["state"],
        "read": told["read"],
        "held": told["held"],
        "job": _jobs(),
        "route": {path for surface in surfaces().values() for path in surface.paths},
    }


def matchers(text: str) -> list[tuple[str, str, str]]:
    """Label, operator and value of each matcher of an expression, or of each label of a series."""
    return re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', text)


def strange_values(text: str, free: Iterable[str] = ()) -> set[str]:
    """Matchers for what no service gives. Of a pattern every alternative must fit something."""
    found = set()
    for label, operator, value in matchers(text):
        if label in FREE or label in free:
            continue
        known = values().get(label, set())
        wanted = value.split("|") if "~" in operator else [re.escape(value)]
        if not all(any(re.fullmatch(one, name) for name in known) for one in wanted):
            found.add(f'{label}{operator}"{value}"')
    return found


def expressions(found: Any) -> set[str]:
    """All that is called `expr`, however deep."""
    if isinstance(found, dict):
        own = {found["expr"]} if isinstance(found.get("expr"), str) else set()
        return own.union(*map(expressions, found.values()))
    return set().union(*map(expressions, found)) if isinstance(found, list) else set()


RULES = expressions(yaml.safe_load((MONITORING / "alerts.yaml").read_text()))
BOARDS = expressions([json.loads(path.read_text()) for path in (MONITORING / "dashboards").glob("*.json")])


@pytest.mark.parametrize("expression", sorted(text for text in RULES | BOARDS if matchers(text)))
def test_every_value_that_is_asked_for_is_given(expression: str) -> None:
    assert strange_values(expression) == set()


def test_the_alerts_are_tested_with_values_that_are_given() -> None:
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    ours = [one["series"] for test in tests for one in test["input_series"] if one["series"].startswith("tistream_")]
    assert any('loop="' in series for series in ours)
    assert {series: strange for series in ours if (strange := strange_values(series, TOLD_APART))} == {}


def test_neither_alerts_nor_dashboards_are_overlooked() -> None:
    asked_of_rules, asked_of_boards = ({label for text in of for label, *_ in matchers(text)} for of in (RULES, BOARDS))
    assert {"job", "kind", "read", "route", "state"} <= asked_of_rules
    assert {"job", "read", "route", "state"} <= asked_of_boards


@pytest.mark.parametrize(
    "matcher",
    [
        'loop="lags"',
        'loop!="refreshed"',
        'loop=~"lag|tenants"',
        'stage="pushed"',
        'kind=~"put|lists"',
        'state="gone"',
        'read="never"',
        'job=~"ti-stream-.+"',
        'route!="/ready"',
        'unheard_of="x"',
    ],
)
def test_a_value_that_is_not_given_is_noticed(matcher: str) -> None:
    assert strange_values(f"sum(rate(tistream_loop_errors_total{{{matcher}}}[5m]))") == {matcher}


def test_values_that_are_given_are_not() -> None:
    assert (
        strange_values('x{loop="lag",stage=~"push|dispatch",state!="lost",job=~"tistream-.+",status=~"5.."}') == set()
    )


def test_names_are_read_off_the_source() -> None:
    assert loop_names('self.x = Loop("a", body, interval_ms=1)\nfound.append(Loop(name="b", body=body))') == {"a", "b"}
    with pytest.raises(ValueError, match="malformed"):
        loop_names("Loop(name, body, interval_ms=1)")
    assert names_gone_through('for stage in ("a", "b"):\n    for other in ("c",):\n        pass', "stage") == {"a", "b"}


def test_stages_are_those_that_a_hold_may_have() -> None:
    [metadata] = Hold.model_fields["stage"].metadata
    assert len(values()["stage"]) > len(HoldCollector.STAGES)
    assert {stage for stage in values()["stage"] if not re.fullmatch(metadata.pattern, stage)} == set()
