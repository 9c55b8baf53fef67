"""TLS and SASL of a Kafka sink: secrets are references in a URI, and values in the client's settings alone."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest
from tistream_changefeed.sinks.kafka.kafka_uri import parse

BASE = "kafka://broker:9092/orders?"


def test_references_become_values_in_the_settings_of_clients_alone() -> None:
    uri = parse(
        BASE + "sasl-user=app&sasl-password=${secret:pw}&sasl-mechanism=scram-sha-512&ca=${secret:ca}"
        "&cert=${secret:cert}&key=${secret:key}"
    )
    target = uri.target.with_secrets({"pw": "hunter2", "ca": "CA-PEM", "cert": "CERT-PEM", "key": "KEY-PEM"})
    assert target.security.settings == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": "CA-PEM",
        "ssl.certificate.pem": "CERT-PEM",
        "ssl.key.pem": "KEY-PEM",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": "hunter2",
    }
    assert "hunter2" not in repr(target)
    assert "PEM" not in repr(target)


def test_without_security_nothing_is_encrypted_and_with_tls_alone_it_is() -> None:
    assert parse(BASE).target.security.settings == {"security.protocol": "PLAINTEXT"}
    assert parse(BASE + "enable-tls=true").target.security.settings == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("sasl-user=a&sasl-password=hunter2", "sasl-password would be stored in clear"),
        ("ca=/etc/passwd", "ca would be stored in clear"),
        ("sasl-user=a", "sasl-user and sasl-password go together"),
        ("sasl-password=${secret:pw}", "go together"),
        ("cert=${secret:c}", "cert and key go together"),
        ("sasl-mechanism=GSSAPI", "one of PLAIN"),
        ("enable-tls=maybe", "true or false"),
        ("enable-tls=false&ca=${secret:ca}", "enable-tls is false"),
        ("insecure-skip-verify=true", "is not supported"),
        ("sasl-oauth-token-url=x", "is not supported"),
        ("sasl-user=a&sasl-password=x${secret:pw}", "would be stored in clear"),
    ],
)
def test_what_is_refused_names_the_option_and_not_its_value(options: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match="sink_uri: ") as refused:
        parse(BASE + options)
    assert reason in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_password_in_the_address_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="tistream secret put"):
        parse("kafka://app:hunter2@broker:9092/orders")
