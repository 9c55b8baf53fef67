"""Parses the URI of a Kafka sink, as TiCDC writes it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from tistream.errors import InvalidRequest
from tistream_changefeed.sinks.kafka.security import parse_security
from tistream_changefeed.sinks.kafka.target import MESSAGE_BYTES_DEFAULT, Delivery, KafkaTarget

T = TypeVar("T")

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,240}")  # `-progress` is added to it, and a topic has at most 249 characters
_BROKER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_DELIVERIES: Mapping[str, Delivery] = {"exactly-once": "exactly-once", "at-least-once": "at-least-once"}
# Keys of TiCDC that change nothing here
_UNUSED = ("kafka-version", "kafka-client-id", "required-acks", "partition", "max.open.requests")
_OWN = ("partition-num", "replication-factor", "auto-create-topic", "max-message-bytes", "compression", "delivery")


@dataclass(frozen=True, slots=True)
class KafkaUri:
    """A parsed URI: the target, the options that are the protocol's, and warnings."""

    target: KafkaTarget
    protocol: str
    options: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def parse(uri: str) -> KafkaUri:
    """Parse `kafka://host:port,…/topic?protocol=…`. Raises InvalidRequest, which names the part, and never a secret."""
    if not uri.startswith("kafka://"):
        raise _bad("a sink is kafka://HOST:PORT,…/TOPIC?protocol=…; other sinks are not supported yet")
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        raise _bad("it has a user or a password, which would be stored in clear: write them as sasl-user and "
                   "sasl-password=${secret:NAME}, with a secret put by `tistream secret put`")  # fmt: skip
    brokers = tuple(one for one in parts.netloc.split(",") if one)
    if not brokers or not all(_BROKER.fullmatch(one) for one in brokers):
        raise _bad("it names no brokers of the form HOST:PORT, separated by commas")
    topic = unquote(parts.path.removeprefix("/"))
    if not _TOPIC.fullmatch(topic):
        raise _bad("the path is not a topic's name: 1 to 240 letters, digits, `.`, `_` and `-`")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise _bad(f"{name[:80]} is there twice")
        options[name] = value
    try:
        security = parse_security(options)
    except ValueError as error:
        raise _bad(str(error)) from error
    if secret := next((name for name in options if _secret(name)), None):
        raise _bad(f"{secret[:80]} is not supported; sasl-user, sasl-password and sasl-mechanism are")
    unused = [name for name in _UNUSED if options.pop(name, None) is not None]
    own = {name: options.pop(name) for name in _OWN if name in options}
    target = KafkaTarget(
        brokers,
        topic,
        _number(own, "partition-num", None, 1, 10_000),
        _number(own, "replication-factor", 1, 1, 100) or 1,
        _one_of(own, "auto-create-topic", {"true": True, "false": False}, True),
        _number(own, "max-message-bytes", MESSAGE_BYTES_DEFAULT, 1_000, 1 << 30) or MESSAGE_BYTES_DEFAULT,
        _one_of(own, "compression", {name: name for name in _COMPRESSIONS}, "none"),
        _one_of(own, "delivery", _DELIVERIES, "exactly-once"),
        security,
    )
    warnings = tuple(f"{name} is accepted and changes nothing" for name in unused)
    return KafkaUri(target, options.pop("protocol", "open-protocol"), options, warnings)


def _secret(name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in ("password", "secret", "token", "sasl"))


def _number(options: Mapping[str, str], name: str, default: int | None, low: int, high: int) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,12}", text) or not low <= int(text) <= high:
        raise _bad(f"{name} is a number from {low} to {high}")
    return int(text)


def _one_of(options: Mapping[str, str], name: str, known: Mapping[str, T], default: T) -> T:
    text = options.get(name)
    if text is None:
        return default
    if text not in known:
        raise _bad(f"{name} is one of {', '.join(known)}")
    return known[text]


def _bad(reason: str) -> InvalidRequest:
    return InvalidRequest(f"sink_uri: {reason}", {"parameter": "sink_uri"})
