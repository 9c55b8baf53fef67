"""Renders ways to run an agent: a command line, a compose service, and a Kubernetes manifest. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

IMAGE = "tistream"
PORT = 8007
_PORT = "TISTREAM_AGENT__PORT"


def command_line(environ: Mapping[str, str]) -> str:
    """A shell command that runs the agent in the foreground, with its settings `environ`."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environ.items()), "tistream agent run"])


def compose_service(environ: Mapping[str, str]) -> str:
    """The YAML text of a service in a compose file. Strings are written as JSON, which is valid YAML."""
    lines = ["  agent:", f"    image: {IMAGE}", '    command: ["agent", "run"]', "    restart: unless-stopped"]
    lines += ["    environment:", *(f"      {name}: {json.dumps(value)}" for name, value in environ.items())]
    return "\n".join(lines) + "\n"


def kubernetes_manifest(environ: Mapping[str, str], name: str) -> str:
    """The manifest (JSON, which is valid YAML) of a StatefulSet `name`, which runs one agent with the settings
    `environ`, and of its PodDisruptionBudget. With a StatefulSet, Kubernetes never runs two agents by its own decision.
    Security context and probes are those of deploy/k8s/components/agent."""
    own = {_PORT: str(PORT), "NUMBA_CACHE_DIR": "/tmp/numba"}
    container = {
        "name": "agent",
        "image": IMAGE,
        "args": ["python", "-m", "tistream_agent"],
        "env": [{"name": key, "value": value} for key, value in {**environ, **own}.items()],
        # Not `tistream agent status`: a territory that has stopped keeps its process, so that its status can be read.
        "startupProbe": {**_probe("/healthz"), "failureThreshold": 24},
        "livenessProbe": {**_probe("/healthz"), "failureThreshold": 6},
        "readinessProbe": {**_probe("/readyz"), "failureThreshold": 2},
        "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "512Mi"}}],
    }
    labels = {"app.kubernetes.io/name": name}
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [stateful_set, budget]}, indent=2) + "\n"


def _probe(path: str) -> dict[str, Any]:
    return {
        "exec": {"command": ["python3", "-I", "-S", "/opt/healthy.py", path]},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
    }
