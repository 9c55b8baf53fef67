"""How a Kafka sink proves itself to the brokers, and they to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tistream.secrets.references import filled, is_reference

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REFERENCE = "${secret:NAME}"


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """TLS with the authority `ca` (None: the system's), the client certificate `cert` and its `key`, all PEM; and SASL.

    As parsed, every text but `mechanism` may be a reference to a secret; `with_secrets` replaces them by values.
    """

    tls: bool = False
    ca: str | None = field(default=None, repr=False)
    cert: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    mechanism: str = "PLAIN"

    def with_secrets(self, values: Mapping[str, str]) -> KafkaSecurity:
        """The same with the values of secrets in place of references."""
        ca, cert, key, user, password = (
            None if text is None else filled(text, values)
            for text in (self.ca, self.cert, self.key, self.user, self.password)
        )
        return replace(self, ca=ca, cert=cert, key=key, user=user, password=password)

    @property
    def settings(self) -> dict[str, str]:
        """Settings of librdkafka."""
        sasl = self.user is not None
        found = {"security.protocol": ("SASL_" if sasl else "") + ("SSL" if self.tls else "PLAINTEXT")}
        pem = {"ssl.ca.pem": self.ca, "ssl.certificate.pem": self.cert, "ssl.key.pem": self.key}
        found |= {name: text for name, text in pem.items() if text is not None}
        if self.user is not None and self.password is not None:
            found |= {"sasl.mechanisms": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return found


PLAIN = KafkaSecurity()


def parse_security(options: dict[str, str]) -> KafkaSecurity:
    """Take the options of security out of those of a URI. Raises ValueError, whose text has no value."""
    for name in ("ca", "cert", "key", "sasl-password"):
        if name in options and not is_reference(options[name]):
            raise ValueError(
                f"{name} would be stored in clear: put it with `tistream secret put`, and write {name}={REFERENCE}"
            )
    if (flag := options.pop("enable-tls", None)) not in (None, "true", "false"):
        raise ValueError("enable-tls is true or false")
    if options.pop("insecure-skip-verify", "false") != "false":
        raise ValueError("insecure-skip-verify is not supported: put the brokers' authority into a secret, as ca")
    ca, cert, key = (options.pop(name, None) for name in ("ca", "cert", "key"))
    user, password = options.pop("sasl-user", None), options.pop("sasl-password", None)
    mechanism = options.pop("sasl-mechanism", "PLAIN").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl-mechanism is one of {', '.join(MECHANISMS)}")
    if (user is None) != (password is None):
        raise ValueError("sasl-user and sasl-password go together")
    if (cert is None) != (key is None):
        raise ValueError("cert and key go together")
    if flag == "false" and ca is not None:
        raise ValueError("ca goes with TLS, and enable-tls is false")
    return KafkaSecurity(flag == "true" or ca is not None or cert is not None, ca, cert, key, user, password, mechanism)
