"""TLS and SASL of a Kafka sink: secrets are references in a feed, and values in the client's settings alone."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.registry.of_feed import registry_of
from tistream_changefeed.sinks.kafka.faults import settings_refused
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics

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


NO_PEM = "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("options", "secrets", "reason"),
    [
        ("ca=${secret:ca}", {"ca": NO_PEM}, "ca is not a certificate in PEM"),
        ("ca=${secret:ca}", {"ca": "hunter2"}, "ca is not a certificate in PEM"),
        ("cert=${secret:c}&key=${secret:k}", {"c": NO_PEM, "k": NO_PEM}, "cert is not a certificate in PEM"),
    ],
)
def test_a_pem_text_that_cannot_be_read_is_named_by_its_option(
    options: str, secrets: dict[str, str], reason: str
) -> None:
    found = target(options).with_secrets(secrets)
    with pytest.raises(FeedFailed, match=reason) as refused:
        Topics(found, "test")
    assert refused.value.failure.refused, "the secret may be put again"
    assert "-----BEGIN CERTIFICATE-----, lines of base64" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_key_that_cannot_be_read_is_named_by_its_option() -> None:
    text = "Failed to create producer: ssl.key.pem failed: not in PEM format?"
    assert "key is not a private key without a passphrase in PEM" in str(settings_refused(text, "kafka://b"))
    assert settings_refused("no provider of a mechanism", "kafka://b").failure.kind == "failed"


@pytest.mark.parametrize("ca", ["hunter2", NO_PEM, "", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_registry_is_not_asked_with_an_authority_that_cannot_be_read(ca: str) -> None:
    feed = parsed("kafka://b:1/t?protocol=avro&ca=${secret:ca}", {"sink": {"schema-registry": "https://r"}})
    with pytest.raises(InvalidRequest, match="ca is not a certificate in PEM") as refused:
        registry_of(feed.config, {"ca": ca})
    assert "hunter2" not in str(refused.value)


def test_a_password_in_clear_is_refused_with_the_way_out() -> None:
    for uri in (BASE + "&sasl-user=a&sasl-password=hunter2", "kafka://app:hunter2@broker:9092/orders"):
        with pytest.raises(InvalidRequest, match="tistream secret put") as refused:
            parsed(uri, {})
        assert "hunter2" not in str(refused.value)
