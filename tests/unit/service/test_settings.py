from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from tistream.service.settings import SERVICES, ServiceSettings, SettingsError, load_settings, settings_config
from tistream_api.settings import ApiSettings
from tistream_cli.platform import up


class Lease(BaseModel):
    model_config = ConfigDict(extra="forbid")
    seconds: int = 10


class ThingSettings(ServiceSettings):
    model_config = settings_config("THING")

    port: int = 8123
    lease: Lease = Lease()


def test_every_service_that_there_is_has_its_settings() -> None:
    """The agent belongs to an upstream cluster, so `tistream up` does not start it."""
    assert {name.lower() for name in SERVICES} == {*up.SERVICES, "agent"}


def test_defaults_are_loopback_and_named_after_the_service() -> None:
    settings = load_settings(ThingSettings)
    assert (settings.url, settings.node, settings.service_name()) == ("http://127.0.0.1:8123", "thing-1", "thing")


def test_environment_wins_and_nests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TISTREAM_THING__PORT", "9000")
    monkeypatch.setenv("TISTREAM_THING__LEASE__SECONDS", "3")
    monkeypatch.setenv("TISTREAM_SORTER__NONSENSE", "of another service")
    settings = load_settings(ThingSettings)
    assert (settings.port, settings.lease.seconds) == (9000, 3)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TISTREAM_THING__PROT", "9000", "unknown setting TISTREAM_THING__PROT"),
        ("TISTREAM_APPI__AUTH", "on", "unknown setting TISTREAM_APPI__AUTH: no service is called so"),
        ("TISTREAM_THIN__PORT", "9000", "unknown setting TISTREAM_THIN__PORT"),
        ("TISTREAM_THING__PORT", "many", "TISTREAM_THING__PORT"),
        ("TISTREAM_THING__PORT", "65536", "TISTREAM_THING__PORT"),
        ("TISTREAM_THING__LEASE__SECOND", "3", "TISTREAM_THING__LEASE__SECOND"),
        ("TISTREAM_THING__LOG_LEVEL", "LOUD", "TISTREAM_THING__LOG_LEVEL"),
        ("TISTREAM_THING__META_URL", "127.0.0.1:8001", "must begin with http"),
        ("TISTREAM_THING__OBJECTS_URL", "objects", "TISTREAM_THING__OBJECTS_URL.*neither a path"),
        ("TISTREAM_THING__OBJECTS_URL", "s3://bucket?endpoint=minio:9000", "TISTREAM_THING__OBJECTS_URL.*endpoint"),
        ("TISTREAM_THING__HOST", "0.0.0.0", "reachable from other machines"),
        ("TISTREAM_THING__HOST", "example.test", "reachable from other machines"),
        ("TISTREAM_THING__TLS__CERT_FILE", "/keys/tls.crt", "CERT_FILE and KEY_FILE go together"),
        ("TISTREAM_THING__TLS__KEY_FILE", "/keys/tls.key", "CERT_FILE and KEY_FILE go together"),
        ("TISTREAM_THING__TLS__CLIENT_CA_FILE", "/keys/ca.crt", "CLIENT_CA_FILE needs CERT_FILE"),
        ("TISTREAM_THING__METRICS_TOKEN_FILE", "/keys/metrics.token", "needs SERVICE_KEY_FILE"),
        ("TISTREAM_THING__ALLOW_INSECURE_BIND", "true", "unknown setting"),
    ],
)
def test_wrong_setting_refuses_and_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=told):
        load_settings(ThingSettings)


KEYS = {"SERVICE_KEY_FILE": "/keys/service.key"}
TLS = {"TLS__CERT_FILE": "/keys/tls.crt", "TLS__KEY_FILE": "/keys/tls.key"}
ELSEWHERE = {"TLS__TERMINATED_ELSEWHERE": "true"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "thing.internal"])
@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, ["SERVICE_KEY_FILE", "TLS__CERT_FILE"]),
        (KEYS, ["TLS__CERT_FILE"]),
        (TLS, ["SERVICE_KEY_FILE"]),
        (ELSEWHERE, ["SERVICE_KEY_FILE"]),
        ({**KEYS, "TLS__CA_FILE": "/keys/ca.crt"}, ["TLS__CERT_FILE"]),
        ({**KEYS, "TLS__TERMINATED_ELSEWHERE": "false"}, ["TLS__CERT_FILE"]),
        ({**KEYS, **TLS}, []),
        ({**KEYS, **ELSEWHERE}, []),
    ],
)
def test_elsewhere_only_with_tokens_and_tls(
    monkeypatch: pytest.MonkeyPatch, host: str, given: dict[str, str], missing: list[str]
) -> None:
    for name, value in {"HOST": host, **given}.items():
        monkeypatch.setenv(f"TISTREAM_THING__{name}", value)
    if not missing:
        assert load_settings(ThingSettings).host == host
        return
    with pytest.raises(SettingsError) as refused:
        load_settings(ThingSettings)
    named = [name for name in ("SERVICE_KEY_FILE", "TLS__CERT_FILE", "AUTH=on") if name in str(refused.value)]
    assert named == missing


def test_the_api_server_needs_auth_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOST": "0.0.0.0", **KEYS, **TLS}.items():
        monkeypatch.setenv(f"TISTREAM_API__{name}", value)
    with pytest.raises(SettingsError, match="that needs AUTH=on; or bind 127"):
        load_settings(ApiSettings)
    monkeypatch.setenv("TISTREAM_API__AUTH", "on")
    assert load_settings(ApiSettings).auth == "on"


def test_the_url_says_how_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TLS.items():
        monkeypatch.setenv(f"TISTREAM_THING__{name}", value)
    assert load_settings(ThingSettings).url == "https://127.0.0.1:8123"
    monkeypatch.setenv("TISTREAM_THING__ADVERTISE_URL", "https://thing.internal:8123/")
    assert load_settings(ThingSettings).url == "https://thing.internal:8123"


@pytest.mark.parametrize(
    ("host", "url"), [("::1", "http://[::1]:8123"), ("localhost", "http://localhost:8123"), ("127.0.0.9", None)]
)
def test_loopback_in_every_spelling(monkeypatch: pytest.MonkeyPatch, host: str, url: str | None) -> None:
    monkeypatch.setenv("TISTREAM_THING__HOST", host)
    assert load_settings(ThingSettings).url == (url or f"http://{host}:8123")


def test_settings_are_immutable() -> None:
    with pytest.raises(ValidationError):
        load_settings(ThingSettings).port = 1
