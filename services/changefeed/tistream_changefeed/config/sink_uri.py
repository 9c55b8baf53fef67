"""Parses the sink URI of a feed that writes to Kafka: its brokers, topic, options and secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tistream.errors import InvalidRequest
from tistream_changefeed.config.keys import KAFKA_KEYS, SinkKeys

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,237}")  # `-dead-letter` is added to it, and a topic has at most 249 characters
_BROKER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")
_SCHEMES = {"kafka": False, "kafka+ssl": True}
NO_PEM = "{} names a file of a worker: write its PEM text, or ${{secret:NAME}}"
_PLACEHOLDER = re.compile(r"\$\{secret:[A-Za-z0-9._-]{1,64}\}")


@dataclass(frozen=True, slots=True)
class SinkUri:
    """A parsed sink URI. `fields` are the fields of FeedConfig that its address sets. `values` are its options, by key
    of the configuration. `shown` is the URI with a placeholder in the place of each secret. `secrets` maps the names in
    the placeholders to the values."""

    fields: Mapping[str, Any]
    values: dict[str, str]
    shown: str
    secrets: dict[str, str]


def is_placeholder(value: str) -> bool:
    """Whether a value has the form `${secret:NAME}`."""
    return _PLACEHOLDER.fullmatch(value) is not None


def is_pem(value: str) -> bool:
    """Whether a value is a PEM text or a placeholder."""
    return value.startswith("-----BEGIN ") or is_placeholder(value)


def unreadable_pem(option: str) -> str:
    """The text of an error about an option whose PEM text cannot be read. It has no part of the text."""
    key = option.rpartition("-")[2] == "key"
    what, label = ("private key without a passphrase", "PRIVATE KEY") if key else ("certificate", "CERTIFICATE")
    form = f"-----BEGIN {label}-----, lines of base64, -----END {label}-----"
    return f"{option} is not a {what} in PEM ({form}): put its secret again"


def placeholder(name: str) -> str:
    """The text that stands for the secret with this name."""
    return f"${{secret:{name}}}"


def parse_kafka_uri(uri: str, prefix: str = "") -> SinkUri:
    """Parse `kafka://host:port,…/topic?protocol=…`. The names of its secrets begin with `prefix`. Raises
    InvalidRequest, which names the part, never a secret."""
    scheme, _, rest = uri.partition("://")
    try:
        parts = urlsplit(f"kafka://{rest}")
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise refused(
            "it is not a URI: write each option as NAME=VALUE, and close the brackets of an IPv6 address"
        ) from None
    user, at, hosts = parts.netloc.rpartition("@")
    brokers = tuple(one for one in hosts.split(",") if one)
    if not brokers or not all(_BROKER.fullmatch(one) for one in brokers):
        raise refused("it names no brokers: write HOST:PORT, separated by commas")
    topic = unquote(parts.path.removeprefix("/"))
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        raise refused("the path is not a topic's name: use 1 to 237 letters, digits, `.`, `_` and `-`")
    if parts.fragment:
        raise refused("it has a fragment: write `#` as %23")
    names = unique_names(options)
    if at:
        name, _, password = user.partition(":")
        options = [("sasl-user", unquote(name)), ("sasl-password", unquote(password)), *options]
        if {"sasl-user", "sasl-password"} & set(names):
            raise refused("it names a user before the brokers and as an option: leave one of them out")
    found = without_secrets(options, KAFKA_KEYS, prefix)
    tls = _SCHEMES[scheme.lower()]
    fields = {"kafka": {"brokers": brokers, "topic": topic, "enable_tls": tls, "large": {}}}
    return SinkUri(fields, found.values, f"{scheme.lower()}://{','.join(brokers)}/{topic}{found.query}", found.secrets)


def unique_names(options: Sequence[tuple[str, str]]) -> list[str]:
    """The names of a URI's options. Raises InvalidRequest if a name is there twice."""
    names = [name for name, _ in options]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refused(f"option {twice[:80]!r} is there twice: give it once")
    return names


class UriOptions(NamedTuple):
    """The options of a sink URI, without secrets: `values` by key of the configuration, and `query`, the text with
    placeholders that follows the path. `secrets` maps the names in the placeholders to the values."""

    values: dict[str, str]
    query: str
    secrets: dict[str, str]


def without_secrets(options: Sequence[tuple[str, str]], keys: SinkKeys, prefix: str) -> UriOptions:
    """Replace the secrets among the options of a URI by placeholders. The names of the secrets begin with `prefix`.
    Raises InvalidRequest for a PEM option that names a file."""
    values: dict[str, str] = {}
    secrets: dict[str, str] = {}
    shown: list[str] = []
    for name, value in options:
        key = keys.used.get(keys.option_key(name))
        if key is not None and key.pem and not is_pem(value):
            raise refused(NO_PEM.format(name))
        text = value
        if key is not None and key.secret and not is_placeholder(value):
            secrets[prefix + name] = value
            text = placeholder(prefix + name)
        values[keys.option_key(name)] = text
        shown.append(f"{quote(name)}={quote(text, safe='${}:/')}")
    return UriOptions(values, f"{'?' if shown else ''}{'&'.join(shown)}", secrets)


def refused(reason: str) -> InvalidRequest:
    """Build the InvalidRequest for an invalid sink URI, with this reason."""
    return InvalidRequest(f"sink_uri: {reason}", {"parameter": "sink_uri"})
