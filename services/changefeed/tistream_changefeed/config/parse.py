"""Parses a sink URI and a configuration file of TiCDC into a FeedConfig. Pure.

An option of the URI wins over the same key of the file, as in TiCDC. Keys that a feed does not need are named in a
warning. Unknown keys, and values that are not supported, are refused by name. Secrets are replaced by references.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import ValidationError

from tistream_changefeed.config import listed
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.keys import FIXED, LISTS, OLD_VALUE, REFUSED, UNNEEDED, USED, Key
from tistream_changefeed.config.listed import refused
from tistream_changefeed.config.sink_uri import NO_PEM, SinkUri, is_pem, is_placeholder, parse_uri, placeholder

_REGISTRY = "sink.schema-registry"
_CLAIM_CHECK = "sink.kafka-config.large-message-handle.claim-check-storage-uri"
_PROTOCOL = "sink.protocol"
_PROTOCOLS = {"default": "open-protocol", "open": "open-protocol"}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_SECRET_OPTION = re.compile(r"(?i)(secret|password|token|key)[^=&]*=(?!\$\{secret:)[^&]+")


@dataclass(frozen=True, slots=True)
class ParsedFeed:
    """A feed's configuration. `sink_uri` and `document` may be stored and shown: they have a placeholder in the place
    of each secret, and parse to the same configuration. `secrets` maps the names in the placeholders to the values."""

    config: FeedConfig
    sink_uri: str
    document: dict[str, Any]
    secrets: Mapping[str, str]
    warnings: tuple[str, ...]


def read_toml(text: str) -> dict[str, Any]:
    """Parse the text of a configuration file. Raises InvalidRequest if it is not TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise refused(f"the text is not TOML: {error}") from None


def parse_feed(sink_uri: str, document: Mapping[str, Any], prefix: str = "") -> ParsedFeed:
    """Parse a sink URI and the document of a configuration file, which may be empty. The names of the secrets that are
    found begin with `prefix`. Raises InvalidRequest, which names the key, and never a secret."""
    uri = parse_uri(sink_uri, prefix)
    warnings: list[str] = []
    secrets = _Secrets(prefix)
    shown, values = _without_secrets(document, secrets)
    for key, option in uri.values.items():
        if key in values and str(values[key]).lower() != option.lower():
            warnings.append(f"{key} of the configuration is not used: the sink URI has another value")
        values[key] = option
    fields = _Fields(uri, warnings)
    for key, value in values.items():
        fields.take(key, value)
    config = fields.config()
    return ParsedFeed(config, uri.shown, shown, {**secrets.values, **uri.secrets}, tuple(warnings))


@dataclass(frozen=True, slots=True)
class _Secrets:
    """Collects the secrets that were replaced by placeholders, by name."""

    prefix: str
    values: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, value: str) -> str:
        """Store a secret under its name. Returns the placeholder for it."""
        self.values[self.prefix + name] = value
        return placeholder(self.prefix + name)


def _without_secrets(document: Mapping[str, Any], secrets: _Secrets) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace the secrets of a configuration by placeholders. Returns (the document with the placeholders, its pairs of
    key and value). The secrets are added to `secrets`."""
    values: dict[str, Any] = {}

    def cleaned(part: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in part.items():
            key = f"{prefix}{str(name).replace('_', '-')}"
            if isinstance(value, Mapping):
                out[name] = cleaned(value, f"{key}.")
                continue
            out[name] = _shown(key, value, secrets)
            if value is not None:
                values[key] = out[name]
        return out

    return cleaned(document, ""), values


def _shown(key: str, value: Any, secrets: _Secrets) -> Any:
    if not isinstance(value, str) or not value:
        return value
    used = USED.get(key)
    if used is not None and used.pem and not is_pem(value):
        raise refused(NO_PEM.format(key))
    name = key.rpartition(".")[2]
    if used is not None and used.secret and not is_placeholder(value):
        return secrets.take(name, value)
    if key in (_REGISTRY, _CLAIM_CHECK):
        return _address(key, value, name, secrets)
    return value


def _address(key: str, value: str, name: str, secrets: _Secrets) -> str:
    """Replace the password in an address by a placeholder. Raises InvalidRequest if options of the address have
    secrets."""
    if _SECRET_OPTION.search(urlsplit(value).query):
        raise refused(f"{key} has a secret as an option: write ${{secret:NAME}} there, and store the secret")
    parts = urlsplit(value)
    user, at, host = parts.netloc.rpartition("@")
    login, colon, password = user.partition(":")
    if not at or not colon or is_placeholder(password):
        return value
    return urlunsplit(parts._replace(netloc=f"{login}:{secrets.take(name, password)}@{host}"))


class _Fields:
    """Collects the fields of a FeedConfig, key by key."""

    def __init__(self, uri: SinkUri, warnings: list[str]) -> None:
        self._values: dict[str, Any] = {
            "kafka": {"brokers": uri.brokers, "topic": uri.topic, "enable_tls": uri.tls, "large": {}},
            "protocol": {},
            "filter": {},
        }
        self._old_values: dict[str, bool] = {}
        self._warnings = warnings

    def take(self, key: str, value: Any) -> None:
        """Set the field that belongs to a key of the configuration. Raises InvalidRequest if the key is unknown or its
        value is invalid."""
        if key in LISTS:
            self._list(key, value)
        elif key in USED:
            self._set(USED[key].field, _converted(key, USED[key], value))
        elif key in OLD_VALUE:
            self._old_values[OLD_VALUE[key]] = _flag(key, value)
        elif key in FIXED:
            accepted, reason = FIXED[key]
            if str(value).lower() not in accepted:
                raise refused(f"{key} = {str(value)[:40]!r} is not supported: {reason}")
            if key == "tistream.compatible":
                self._set("compatible", True)
        elif any(key.startswith(one) for one in REFUSED):
            raise refused(f"{key}: {next(reason for one, reason in REFUSED.items() if key.startswith(one))}")
        elif any(key == one or (one.endswith(".") and key.startswith(one)) for one in UNNEEDED):
            self._warnings.append(f"{key} is accepted and changes nothing: a feed does not need it")
        else:
            raise refused(f"{key[:120]!r} is unknown{_nearest(key)}")

    def config(self) -> FeedConfig:
        """Build the configuration from the fields. Raises InvalidRequest if values contradict each other."""
        protocol = self._values["protocol"]
        name = str(protocol.get("protocol", "open-protocol")).lower()
        if name == "csv":
            raise refused(
                "protocol csv is for object storage, and TiCDC has none into Kafka: use open-protocol or canal-json"
            )
        protocol["protocol"] = _PROTOCOLS.get(name, name)
        protocol["output_old_value"] = self._old_values.get(protocol["protocol"], True)
        if mechanism := self._values["kafka"].get("sasl_mechanism"):
            self._values["kafka"]["sasl_mechanism"] = str(mechanism).upper()
        try:
            config = FeedConfig.model_validate(self._values)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            key = next((key for key, used in USED.items() if used.field == where), where)
            raise refused(f"{key}: {first['msg']}") from None
        _check(config)
        return config

    def _list(self, key: str, value: Any) -> None:
        if key == "sink.dispatchers":
            self._values["dispatchers"] = listed.dispatchers(value)
        elif key == "sink.column-selectors":
            self._values["column_selectors"] = listed.column_selectors(value)
        elif key == "tistream.tables":
            self._values["tables"] = listed.table_errors(value)
        else:
            self._values["filter"]["event_filters"] = listed.event_filters(value)

    def _set(self, field: str, value: Any) -> None:
        *parents, name = field.split(".")
        place = self._values
        for parent in parents:
            place = place[parent]
        place[name] = value


def _converted(key: str, used: Key, value: Any) -> Any:
    match used.kind:
        case "flag":
            return _flag(key, value)
        case "number":
            return _number(key, value, used.low, used.high)
        case "numbers":
            if not isinstance(value, list):
                raise refused(f"{key} = {listed.shown(value)} is not a list of numbers: write, for example, [1, 2]")
            return tuple(_number(key, one, used.low, used.high) for one in value)
        case "texts":
            return listed.texts(key, value)
    if not isinstance(value, str):
        raise refused(f"{key} is not a text: put it in quotes")
    return value


def _flag(key: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise refused(f"{key} = {listed.shown(value)} is neither true nor false")
    return text == "true"


def _number(key: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not _INTEGER.fullmatch(str(value)):
        raise refused(f"{key} = {listed.shown(value)} is not a whole number from {low} to {high}")
    if not low <= int(value) <= high:
        raise refused(f"{key} = {listed.shown(value)} does not lie from {low} to {high}")
    return int(value)


def _nearest(key: str) -> str:
    known = [*USED, *OLD_VALUE, *FIXED, *LISTS, *UNNEEDED]
    found = difflib.get_close_matches(key, known, 1, 0.75)
    return f": is it {found[0]!r}?" if found else ": remove it"


def _check(config: FeedConfig) -> None:
    """Check that the settings do not contradict each other. Raises InvalidRequest."""
    kafka, protocol = config.kafka, config.protocol
    if kafka.required_acks != -1 and config.delivery == "exactly-once":
        raise refused(
            "required-acks must be -1 (all) with delivery = 'exactly-once': remove it, or set delivery = "
            "'at-least-once'"
        )
    if (kafka.sasl_user is None) != (kafka.sasl_password is None):
        raise refused("sasl-user and sasl-password are needed together: give both, or neither")
    if (kafka.cert is None) != (kafka.key is None):
        raise refused("cert and key are needed together: give both, or neither")
    if protocol.protocol == "avro":
        if protocol.schema_registry is None:
            raise refused(
                "protocol avro needs sink.schema-registry: set the address of a schema registry, or use another "
                "protocol"
            )
        if config.filter.force_replicate:
            raise refused(
                "protocol avro needs a key in each message, and force-replicate sends tables without one: set it to "
                "false"
            )
    if protocol.protocol == "simple" and max(config.shards, config.shards_max) > 1:
        raise refused(
            "protocol simple has one shard, because its schemas stand before the rows of a partition: set "
            "tistream.shards = 1 and no higher shards-max"
        )
    if config.admin_events and protocol.protocol != "open-protocol":
        raise refused(f"admin-events is not supported with {protocol.protocol}: only open-protocol has such messages")
    _check_large(config)


def _check_large(config: FeedConfig) -> None:
    protocol, large = config.protocol, config.kafka.large
    if large.option == large.compression == "none":
        return
    if protocol.protocol not in ("open-protocol", "simple", "canal-json"):
        raise refused(
            f"large-message-handle is not supported with {protocol.protocol}: remove it, or use another protocol"
        )
    if large.option == "none":
        return
    if protocol.protocol == "canal-json" and not protocol.enable_tidb_extension:
        raise refused("large-message-handle needs enable-tidb-extension = true with canal-json: set it")
    if large.option == "claim-check" and large.claim_check_storage_uri is None:
        raise refused("claim-check needs claim-check-storage-uri, the place of large messages: set it")
    if large.claim_check_raw_value and protocol.protocol == "open-protocol":
        raise refused("claim-check-raw-value is not supported with open-protocol: remove it")
