"""The settings of each service."""

from __future__ import annotations

import importlib

from tistream.service.settings import ServiceSettings

SERVICES = ("api", "changefeed", "dispatcher", "ingest", "meta", "schema", "sorter")
IN_BASE = tuple(one for one in SERVICES if one not in ("changefeed", "ingest"))  # of deploy/k8s; they are components


def settings_class(service: str) -> type[ServiceSettings]:
    """Of one of SERVICES."""
    module = importlib.import_module(f"tistream_{service}.settings")
    [found] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceSettings) and value is not ServiceSettings
    ]
    return found
