"""docs/operations/alerts.md says for every alert what it means and what to do; defaults of settings fit together."""

from __future__ import annotations

import re

import yaml

from support.manifests import ROOT
from support.settings_classes import SERVICES, settings_class
from tistream_cli.base_url import DEFAULT_URL

PAGE = ROOT / "docs" / "operations" / "alerts.md"


def test_on_one_machine_every_service_has_a_port_of_its_own_and_finds_the_meta_server() -> None:
    defaults = {service: settings_class(service)() for service in SERVICES}
    assert len({settings.port for settings in defaults.values()}) == len(SERVICES)
    assert {settings.meta_url for settings in defaults.values()} == {defaults["meta"].url}
    assert defaults["api"].url == DEFAULT_URL, "where the command looks for it"


def test_every_alert_has_its_entry_and_no_entry_is_of_none() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"]]
    text = PAGE.read_text()
    entries = re.findall(r"^## (TiStream\w+)\n\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in entries] == alerts
    for name, entry in entries:
        assert entry.startswith(("*Means:*", "*Means, look at, do:*")), name
        assert re.search(r"\*(Do|Look at|Look at, do|Means, look at, do):\*", entry), name
