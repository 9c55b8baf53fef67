"""Settings of TLS and SASL, with which a Kafka sink and the brokers authenticate each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tistream.secrets.references import filled


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """Settings of TLS: the authority `ca` (None: the system's), the client certificate `cert` and its `key`, all PEM;
    and of SASL. After parsing, every text but `mechanism` may be a reference to a secret; `with_secrets` replaces it by
    the value."""

    tls: bool = False
    ca: str | None = field(default=None, repr=False)
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    mechanism: str = "PLAIN"

    def with_secrets(self, values: Mapping[str, str]) -> KafkaSecurity:
        """The settings with the values of secrets in place of references."""
        ca, cert, key, user, password = (
            None if text is None else filled(text, values)
            for text in (self.ca, self.cert, self.key, self.user, self.password)
        )
        return replace(self, ca=ca, cert=cert, key=key, user=user, password=password)

    @property
    def settings(self) -> dict[str, str]:
        """The same settings by librdkafka's names."""
        sasl = self.user is not None
        found = {"security.protocol": ("SASL_" if sasl else "") + ("SSL" if self.tls else "PLAINTEXT")}
        pem = {"ssl.ca.pem": self.ca, "ssl.certificate.pem": self.cert, "ssl.key.pem": self.key}
        found |= {name: text for name, text in pem.items() if text is not None}
        if self.user is not None and self.password is not None:
            found |= {"sasl.mechanisms": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return found


PLAIN = KafkaSecurity()
