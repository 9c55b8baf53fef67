"""TLS and SASL of a Kafka sink: secrets are references in a feed, and values in the client's settings alone."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.target import KafkaTarget

BASE = "kafka://broker:9092/orders?protocol=open-protocol"


def target(options: str) -> KafkaTarget:
    return parsed(f"{BASE}&{options}" if options else BASE, {}).target


def test_references_become_values_in_the_settings_of_clients_alone() -> None:
    found = target(
        "sasl-user=app&sasl-password=${secret:pw}&sasl-mechanism=scram-sha-512&ca=${secret:ca}"
        "&cert=${secret:cert}&key=${secret:key}&enable-tls=true"
    ).with_secrets({"pw": "hunter2", "ca": "CA-PEM", "cert": "CERT-PEM", "key": "KEY-PEM"})
    assert found.security.settings == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": "CA-PEM",
        "ssl.certificate.pem": "CERT-PEM",
        "ssl.key.pem": "KEY-PEM",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": "hunter2",
    }
    assert "hunter2" not in repr(found)
    assert "PEM" not in repr(found)


def test_without_security_nothing_is_encrypted_and_with_tls_alone_it_is() -> None:
    assert target("").security.settings == {"security.protocol": "PLAINTEXT"}
    assert target("enable-tls=true").security.settings == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    "options", ["sasl-user=a&sasl-password=hunter2", "sasl-user=a", "sasl-password=${secret:pw}", "ca=/etc/passwd",
                "cert=${secret:c}", "sasl-mechanism=GSSAPI", "insecure-skip-verify=true"],
)  # fmt: skip
def test_what_is_refused_does_not_show_a_password(options: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        target(options)
    assert "hunter2" not in str(refused.value)


def test_a_password_in_clear_is_refused_with_the_way_out() -> None:
    for uri in (BASE + "&sasl-user=a&sasl-password=hunter2", "kafka://app:hunter2@broker:9092/orders"):
        with pytest.raises(InvalidRequest, match="tistream secret put") as refused:
            parsed(uri, {})
        assert "hunter2" not in str(refused.value)
