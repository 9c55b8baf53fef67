"""The routes and metrics of each service, read from the real apps. Their loops are not started."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from support.in_process import AppClient
from tistream.clock import Clock, SystemClock
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_agent.app import build_app as build_agent
from tistream_agent.settings import AgentSettings
from tistream_api.app import build_app as build_api
from tistream_api.settings import ApiSettings
from tistream_changefeed.app import build_app as build_changefeed
from tistream_changefeed.settings import ChangefeedSettings
from tistream_dispatcher.app import build_app as build_dispatcher
from tistream_dispatcher.settings import DispatcherSettings
from tistream_meta.app import build_app as build_meta
from tistream_meta.settings import MetaSettings
from tistream_schema.app import build_app as build_schema
from tistream_schema.settings import SchemaSettings
from tistream_sorter.app import ProcessEnvironment
from tistream_sorter.app import build_app as build_sorter
from tistream_sorter.settings import SorterSettings


@dataclass(frozen=True)
class Surface:
    """The routes and metrics of one service. `metrics`: each name as Prometheus stores it (a histogram has three)."""

    paths: frozenset[str]
    metrics: frozenset[str]
    labels: Mapping[str, frozenset[str]]  # of each of them


class _NoSpark:
    """A runner that is never used."""

    slots = 1
    alive = True

    def run(self, shards: Any, *, beside: bool = False) -> list[Any]:
        raise AssertionError("no loop was started")

    def warm(self) -> None:
        raise AssertionError("no loop was started")

    def close(self) -> None:
        raise AssertionError("no loop was started")


def _no_end(code: str) -> None:
    raise AssertionError(f"no loop was started, but it ended: {code}")


def apps(clock: Clock, **settings: Any) -> Mapping[str, Callable[[], FastAPI]]:
    """Functions that build each service's app, with further settings that all of them have."""
    objects = MemoryObjectStore()
    upstream: dict[str, Any] = {"pd": "127.0.0.1:2379", "cluster": "7", "tenant": "shop"}
    return {
        "agent": lambda: build_agent(AgentSettings(**upstream, **settings), objects, clock, _no_end),
        "api": lambda: build_api(ApiSettings(**settings), objects, clock),
        "changefeed": lambda: build_changefeed(ChangefeedSettings(**settings), objects, clock, Random(0)),
        "dispatcher": lambda: build_dispatcher(DispatcherSettings(**settings), objects, clock),
        "meta": lambda: build_meta(MetaSettings(database_url="sqlite://", **settings), objects, clock),
        "schema": lambda: build_schema(SchemaSettings(**settings), objects, None, clock),
        "sorter": lambda: build_sorter(
            SorterSettings(**settings), objects, clock, ProcessEnvironment(new_runner=lambda _settings: _NoSpark())
        ),
    }


def _surface(app: FastAPI) -> Surface:
    text = AppClient(app).get("/metrics").text
    names: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {f"{name}{end}" for end in ("_bucket", "_count", "_sum")} if kind == "histogram" else {name}
    return Surface(frozenset(app.openapi()["paths"]), frozenset(names), _labels(app.state.metrics, names))


def _labels(registry: CollectorRegistry, names: set[str]) -> dict[str, frozenset[str]]:
    """The labels of each metric, as its collector declares them: a counter that has counted nothing shows none."""
    found: dict[str, frozenset[str]] = {}
    for collector, own in registry._collector_to_names.items():
        declared = getattr(collector, "_labelnames", None)
        if declared is not None:
            found |= {name: frozenset(declared) for name in own}
    for family in registry.collect():  # of collectors that make their metrics when they are asked
        for name in (family.name, f"{family.name}_total"):
            if getattr(family, "_labelnames", None):
                found.setdefault(name, frozenset(family._labelnames))  # type: ignore[attr-defined]
    histograms = {name for name in names if name.endswith("_bucket")}
    return {name: labels | ({"le"} if name in histograms else set()) for name, labels in found.items()}


@functools.cache
def surfaces() -> Mapping[str, Surface]:
    """{service: its routes and metrics}. The apps are built at the first call: every process of pytest imports this."""
    return {service: _surface(build()) for service, build in apps(SystemClock()).items()}
