"""docs/operations/alerts.md says for every alert what it means and what to do; defaults of settings fit together."""

from __future__ import annotations

import re

import yaml
from typer.testing import CliRunner

from support.manifests import ROOT
from support.settings_classes import SERVICES, settings_class
from tistream.service.http.traces import END_SECONDS
from tistream.service.observe.otel import QUEUE_SPANS, SEND_SECONDS
from tistream_cli.commands.tenant_app import tenant_app
from tistream_client.cli.base_url import DEFAULT_URL

PAGE = ROOT / "docs" / "operations" / "alerts.md"
TRACES = ROOT / "docs" / "operations" / "traces.md"


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


def test_the_page_of_traces_names_every_service_that_sends_them() -> None:
    text = TRACES.read_text()
    line = re.search(r"^TISTREAM_META__TRACES_URL=\S+ +# and (.*)$", text, re.MULTILINE)
    assert line is not None
    assert {"META", *line[1].split(", ")} == {service.upper() for service in SERVICES}
    assert all("traces_url" in settings_class(service).model_fields for service in SERVICES)
    policy = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    (selected,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert set(selected["values"]) == {f"tistream-{service}" for service in SERVICES}


def test_the_page_of_traces_has_the_limits_of_what_waits_for_a_collector() -> None:
    text = " ".join(TRACES.read_text().split())
    assert f"at most {QUEUE_SPANS:,} spans wait" in text
    assert f"a batch is dropped after {SEND_SECONDS:g} s" in text
    assert f"a process that ends waits {END_SECONDS:g} s" in text


def test_the_help_of_quotas_says_what_0_means_of_pulls_at_once() -> None:
    answer = CliRunner().invoke(tenant_app, ["quotas", "--help"], env={"COLUMNS": "400"})
    assert answer.exit_code == 0
    assert "pulls_at_once: half of what a server allows" in " ".join(answer.output.split())
