"""A real Kafka with a listener of TLS and SASL beside its plain one: one broker for the tests of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.certificates import Authority
from support.kafka import kafka
from support.platform import free_port
from tistream_cli.platform.local_kafka import LocalKafka

USER, PASSWORD = "app", "hunter2"


@dataclass(frozen=True)
class SecuredKafka:
    """`broker` answers in plain text at its address, and USER with PASSWORD at `port` by TLS, whose certificate the
    `authority` (PEM) has signed."""

    broker: LocalKafka
    port: int
    authority: str


@contextmanager
def secured_kafka(directory: Path) -> Iterator[SecuredKafka]:
    """Such a broker for a `with` block."""
    authority = Authority(directory, "authority")
    signed = authority.sign("broker")
    port, plain, controller = free_port(), free_port(), free_port()
    certificate, key = (path.read_text().strip().replace("\n", "\\n") for path in (signed.cert_file, signed.key_file))
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    options = (
        f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{port}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.secure.plain.sasl.jaas.config={login}",
        "listener.name.secure.ssl.keystore.type=PEM",
        f"listener.name.secure.ssl.keystore.certificate.chain={certificate}",
        f"listener.name.secure.ssl.keystore.key={key}",
    )
    with kafka(directory / "kafka", options, ports=(plain, controller)) as broker:
        yield SecuredKafka(broker, port, authority.file.read_text())
