"""deploy/k8s sets only settings that exist, and holds every service (docker-compose.yml: test_compose_file.py)."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from tistream.service.settings import NESTED, ServiceSettings

ROOT = Path(__file__).parents[1]
SERVICES = ("api", "dispatcher", "meta", "schema", "sorter")


def _settings_class(service: str) -> type[ServiceSettings]:
    module = importlib.import_module(f"tistream_{service}.settings")
    [found] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceSettings) and value is not ServiceSettings
    ]
    return found


def _k8s(service: str) -> dict[str, str]:
    workload, _ = yaml.safe_load_all((ROOT / "deploy" / "k8s" / "base" / f"{service}.yaml").read_text())
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", f"tistream_{service}"]
    filled = {"NODE_ID": "x-0", "ADVERTISE_URL": "http://x-0.x:1", "OBJECTS_URL": "s3://x", "DATABASE_URL": "mysql://x"}
    return {
        entry["name"]: filled.get(entry["name"].split(NESTED)[1], entry.get("value", ""))
        for entry in container["env"]
        if entry["name"].startswith("TISTREAM_")
    }


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_is_a_setting_with_a_valid_value(service: str) -> None:
    prefix = f"TISTREAM_{service.upper()}{NESTED}"
    environment = _k8s(service)
    assert all(name.startswith(prefix) for name in environment)
    # Arguments are validated as the environment is, and an unknown one is refused.
    settings = _settings_class(service)(**{name.removeprefix(prefix).lower(): v for name, v in environment.items()})
    assert settings.allow_insecure_bind
    assert settings.advertise_url


def test_it_holds_every_service() -> None:
    kustomization = yaml.safe_load((ROOT / "deploy" / "k8s" / "base" / "kustomization.yaml").read_text())
    assert {f"{service}.yaml" for service in SERVICES} <= set(kustomization["resources"])
    for name in kustomization["resources"]:
        assert (ROOT / "deploy" / "k8s" / "base" / name).is_file()
