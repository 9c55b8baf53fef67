"""How an agent is started: the command line, a compose service, and a Kubernetes manifest. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

IMAGE = "tistream"
PORT = 8007


def command_line(environ: Mapping[str, str]) -> str:
    """A shell command that runs the agent in the foreground."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environ.items()), "tistream agent run"])


def compose_service(environ: Mapping[str, str]) -> str:
    """A service of a compose file. JSON strings are YAML strings."""
    lines = ["  agent:", f"    image: {IMAGE}", '    command: ["agent", "run"]', "    restart: unless-stopped"]
    lines += ["    environment:", *(f"      {name}: {json.dumps(value)}" for name, value in environ.items())]
    return "\n".join(lines) + "\n"


def kubernetes_manifest(environ: Mapping[str, str], name: str) -> str:
    """A StatefulSet with one replica: Kubernetes then never runs two of them by its own decision."""
    variables = [{"name": key, "value": value} for key, value in environ.items()]
    container = {
        "name": "agent",
        "image": IMAGE,
        "args": ["agent", "run"],
        "env": variables,
        "livenessProbe": {"exec": {"command": ["tistream", "agent", "status", "--port", str(PORT)]}},
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    labels = {"app": name}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 15},
            },
        },
    }
    return json.dumps(manifest, indent=2) + "\n"
