"""docker-compose.yml sets only settings that exist, and every service is in it (deploy/k8s: tests/deploy)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

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


def _compose(service: str) -> dict[str, str]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][service]
    assert found["command"] == ["python", "-m", f"tistream_{service}"]
    return {name: value for name, value in found["environment"].items() if name.startswith("TISTREAM_")}


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_is_a_setting_with_a_valid_value(service: str) -> None:
    prefix = f"TISTREAM_{service.upper()}{NESTED}"
    environment = _compose(service)
    assert all(name.startswith(prefix) for name in environment)
    # Arguments are validated as the environment is, and an unknown one is refused.
    settings = _settings_class(service)(**{name.removeprefix(prefix).lower(): v for name, v in environment.items()})
    assert settings.allow_insecure_bind
    assert settings.advertise_url


def test_it_holds_every_service() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert sorted(compose["services"]) == sorted(SERVICES)
