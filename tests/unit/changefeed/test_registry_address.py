"""The address of a schema registry: checked against the operator's list, and filled with secrets."""

from __future__ import annotations

import pytest

from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream_changefeed.registry.address import host_of, with_secrets
from tistream_changefeed.sinks.allowed import check_hosts
from tistream_changefeed.sinks.kafka.feed_settings import parsed

URI = "kafka://broker:9092/t?protocol=avro"


def avro(registry: str) -> tuple[str, ...]:
    return parsed(URI, {"sink": {"schema-registry": registry}}).hosts


def test_a_feed_connects_to_its_brokers_and_its_registry() -> None:
    assert avro("https://registry.example/path") == ("broker:9092", "registry.example:443")
    assert avro("http://app:${secret:pw}@[::1]:8081") == ("broker:9092", "::1:8081")
    with pytest.raises(TargetNotAllowed, match=r"may not write to 10\.0\.0\.1:80"):
        check_hosts(avro("http://10.0.0.1"), ("broker",))


@pytest.mark.parametrize(
    "url", ["registry:8081", "ftp://r", "http://", "http://r:x", "http://[::1", "http://r?token=abc123", "file:///etc"]
)
def test_what_is_no_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidRequest, match="schema-registry is no address") as refused:
        host_of(url)
    assert "abc123" not in str(refused.value)


def test_a_password_is_never_part_of_the_configuration() -> None:
    with pytest.raises(InvalidRequest, match="would be stored in clear") as refused:
        avro("http://app:hunter2@registry:8081")
    assert "hunter2" not in str(refused.value)


def test_secrets_are_percent_encoded_in_the_address() -> None:
    found = with_secrets("http://app:${secret:pw}@r:1", {"pw": "a/b@c:d"})
    assert found == "http://app:a%2Fb%40c%3Ad@r:1"
