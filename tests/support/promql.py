"""What an expression of PromQL rests on: metrics, and labels of each; and what the services really export."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from support.app_surfaces import surfaces

# Of Prometheus itself and of the kubelet.
OUTSIDE = {"up", "kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}
# What Prometheus adds to whatever it reads, there and in Kubernetes.
OF_THE_TARGET = frozenset({"job", "instance", "pod", "namespace", "role", "persistentvolumeclaim", "__name__"})
_FUNCTIONS = "max_over_time|max|min|sum|rate|increase|delta|changes|topk|histogram_quantile|vector"
_WORDS = rf"\b({_FUNCTIONS}|and|or|offset|\d+\w*)\b"


@functools.cache
def exported() -> Mapping[str, frozenset[str]]:
    """{metric: labels}, of all services."""
    found = surfaces().values()
    return {
        name: frozenset().union(*(surface.labels.get(name, frozenset()) for surface in found))
        for name in sorted({name for surface in found for name in surface.metrics})
    }


def metrics_of(expression: str) -> set[str]:
    """The names of metrics; those chosen by __name__ too."""
    chosen = set()
    for pattern in re.findall(r'__name__=~"([^"]+)"', expression):
        chosen |= {name for name in exported() if re.fullmatch(pattern, name)}
        assert chosen, f"nothing is called {pattern}"
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", expression)
    bare = re.sub(r"\b(by|on)\s*\([^)]*\)", " ", bare)
    return chosen | set(re.findall(r"[a-z_][a-z0-9_]*", re.sub(_WORDS, " ", bare)))


def strange_labels(expression: str) -> set[str]:
    """`metric{label}` and `by (label)` that no service gives: of a matcher its own metric must have it, of a grouping
    some metric of the expression."""
    found = set()
    for name, matchers in re.findall(r"([a-z_][a-z0-9_]*)?\{([^}]*)\}", expression):
        known = labels_of(name) if name else frozenset().union(*map(labels_of, metrics_of(expression)))
        labels = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers)
        found |= {f"{name}{{{label}}}" for label in labels if label not in known}
    every = frozenset().union(*map(labels_of, metrics_of(expression)))
    for grouping in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        found |= {f"by ({label})" for label in re.findall(r"\w+", grouping) if label not in every}
    return found


def labels_of(metric: str) -> frozenset[str]:
    """Its own, and the target's."""
    return exported().get(metric, frozenset()) | OF_THE_TARGET
