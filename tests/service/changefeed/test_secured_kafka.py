"""A broker that wants TLS and a password: the right secrets open it, and wrong ones are named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.certificates import Authority
from support.kafka import kafka, partitions_of
from support.platform import free_port
from support.secret_pair import new_pair
from tistream.model.ids import TenantKey
from tistream.secrets.sealing import public_key, seal
from tistream.wire.bulk.changefeeds import CheckChangefeed, CreateChangefeed
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.feed_settings import parsed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.kafka.target import KafkaTarget
from tistream_changefeed.sinks.kafka.topics import Topics
from tistream_cli.platform.local_kafka import LocalKafka

ACME = TenantKey("7", "acme")
PRIVATE, PUBLIC = new_pair(b"7" * 32)


@dataclass
class Secured:
    """A broker with a listener of TLS and SASL beside its plain one."""

    broker: LocalKafka
    port: int
    authority: str
    keys: SecretKeys

    def target(self, **secrets: str) -> KafkaTarget:
        """The target of a feed, with these secrets of its tenant."""
        uri = (
            f"kafka://127.0.0.1:{self.port}/secured?partition-num=1&sasl-user=app&sasl-password=${{secret:pw}}"
            "&ca=${secret:ca}"
        )
        sealed = {name: seal(public_key(PUBLIC), ACME, name, value) for name, value in secrets.items()}
        check = CheckChangefeed(
            cluster_id="7",
            tenant_id="acme",
            wanted=CreateChangefeed(changefeed_id="all", sink_uri=uri),
            secrets=sealed,
        )
        values = self.keys.values(ACME, uri, {}, check.secrets)
        return parsed(uri, {}).target.with_secrets(values)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory, "authority")
    signed = authority.sign("broker")
    port, plain, controller = free_port(), free_port(), free_port()
    in_line = {name: path.read_text().strip().replace("\n", "\\n") for name, path in
               (("cert", signed.cert_file), ("key", signed.key_file))}  # fmt: skip
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_app="hunter2";'
    options = (
        f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{port}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.secure.plain.sasl.jaas.config={login}",
        "listener.name.secure.ssl.keystore.type=PEM",
        f"listener.name.secure.ssl.keystore.certificate.chain={in_line['cert']}",
        f"listener.name.secure.ssl.keystore.key={in_line['key']}",
    )
    key_file = directory / "secrets.key"
    key_file.write_text(PRIVATE)
    with kafka(directory / "kafka", options, ports=(plain, controller)) as broker:
        yield Secured(broker, port, authority.file.read_text(), SecretKeys(key_file))


def test_the_right_secrets_open_the_broker(secured: Secured) -> None:
    topics = Topics(secured.target(pw="hunter2", ca=secured.authority), "test")
    assert topics.partitions("secured") == 1
    assert partitions_of(secured.broker.address, "secured") == [0]


def test_a_wrong_password_is_a_reason_without_the_password(secured: Secured) -> None:
    topics = Topics(secured.target(pw="hunter3", ca=secured.authority), "test")
    with pytest.raises(FeedFailed) as refused:
        topics.partitions("secured")
    assert "hunter3" not in str(refused.value)
    assert "the broker refuses sasl-user, sasl-password or sasl-mechanism" in str(refused.value)


def test_an_authority_that_did_not_sign_is_a_reason(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").file.read_text()
    topics = Topics(secured.target(pw="hunter2", ca=stranger), "test")
    with pytest.raises(FeedFailed) as refused:
        topics.partitions("secured")
    assert "TLS with the broker fails: check the secrets of ca" in str(refused.value)
