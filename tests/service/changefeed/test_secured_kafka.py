"""A broker that wants TLS and a password: the right secrets open it, and wrong ones are named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from support.certificates import Authority
from support.kafka import partitions_of
from support.secret_pair import new_pair
from support.secured_kafka import PASSWORD, USER, SecuredKafka
from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.secrets.sealing import public_key, seal
from tistream.wire.bulk.changefeeds import CheckChangefeed, CreateChangefeed
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.feed_checks import FeedChecks
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.kafka.feed_settings import parsed
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics

ACME = TenantKey("7", "acme")
PRIVATE, PUBLIC = new_pair(b"7" * 32)


@dataclass(frozen=True)
class Secured:
    """The broker, and the secrets of tenants that the service opens."""

    kafka: SecuredKafka
    keys: SecretKeys

    @property
    def uri(self) -> str:
        """The sink URI of a feed."""
        return (
            f"kafka://127.0.0.1:{self.kafka.port}/secured?partition-num=1&sasl-user={USER}"
            "&sasl-password=${secret:pw}&ca=${secret:ca}"
        )

    def target(self, **secrets: str) -> KafkaTarget:
        """The target of the feed, with these secrets of its tenant."""
        uri = self.uri
        values = self.keys.values(ACME, uri, {}, self.check(**secrets).secrets)
        return parsed(uri, {}).target.with_secrets(values)

    def check(self, **secrets: str) -> CheckChangefeed:
        """What asks whether such a feed can run."""
        sealed = {name: seal(public_key(PUBLIC), ACME, name, value) for name, value in secrets.items()}
        wanted = CreateChangefeed(changefeed_id="all", sink_uri=self.uri)
        return CheckChangefeed(cluster_id="7", tenant_id="acme", wanted=wanted, secrets=sealed)


@pytest.fixture
def secured(secured_broker: SecuredKafka, tmp_path: Path) -> Secured:
    key_file = tmp_path / "secrets.key"
    key_file.write_text(PRIVATE)
    return Secured(secured_broker, SecretKeys(key_file))


def test_the_right_secrets_open_the_broker(secured: Secured) -> None:
    topics = Topics(secured.target(pw=PASSWORD, ca=secured.kafka.authority), "test")
    assert topics.partitions("secured") == 1
    assert partitions_of(secured.kafka.broker.address, "secured") == [0]


def test_a_wrong_password_is_a_reason_without_the_password(secured: Secured) -> None:
    topics = Topics(secured.target(pw="hunter3", ca=secured.kafka.authority), "test")
    with pytest.raises(FeedFailed) as refused:
        topics.partitions("secured")
    assert "hunter3" not in str(refused.value)
    assert "the broker refuses sasl-user, sasl-password or sasl-mechanism" in str(refused.value)
    assert refused.value.failure.refused


def test_an_authority_that_did_not_sign_is_a_reason(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").file.read_text()
    topics = Topics(secured.target(pw=PASSWORD, ca=stranger), "test")
    with pytest.raises(FeedFailed) as refused:
        topics.partitions("secured")
    assert "TLS with the broker fails: check the secrets of ca" in str(refused.value)
    assert refused.value.failure.refused


def test_a_feed_with_a_wrong_password_or_authority_is_refused_at_its_creation(secured: Secured, tmp_path: Path) -> None:
    checks = FeedChecks(Allowed(["127.0.0.1"]), secured.keys, lambda _: [])
    stranger = Authority(tmp_path, "stranger").file.read_text()
    for secrets in ({"pw": "hunter3", "ca": secured.kafka.authority}, {"pw": PASSWORD, "ca": stranger}):
        with pytest.raises(InvalidRequest, match=r"sasl-mechanism|check the secrets of ca") as refused:
            checks.plan(secured.check(**secrets))
        assert "hunter3" not in str(refused.value)
        assert refused.value.extra == {"parameter": "sink_uri"}
    assert checks.plan(secured.check(pw=PASSWORD, ca=secured.kafka.authority)).topics == {"secured": 1}


def test_a_port_of_tls_is_told_to_who_asks_in_clear(secured: Secured) -> None:
    uri = f"kafka://127.0.0.1:{secured.kafka.port}/secured?partition-num=1"
    checks = FeedChecks(Allowed(["127.0.0.1"]), secured.keys, lambda _: [])
    check = CheckChangefeed(
        cluster_id="7", tenant_id="acme", wanted=CreateChangefeed(changefeed_id="all", sink_uri=uri)
    )
    with pytest.raises(Unavailable, match="does it want enable-tls=true, or a sasl-user"):
        checks.plan(check)
