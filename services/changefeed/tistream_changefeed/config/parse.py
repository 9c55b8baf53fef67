"""Parses a sink URI and a configuration file of TiCDC into a FeedConfig. Pure.

An option of the URI wins over the same key of the file, as in TiCDC. Keys that a feed does not need are named in a
warning. Unknown keys, and values that are not supported, are refused by name. Secrets are replaced by references.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import ValidationError

from tistream.errors import InvalidRequest
from tistream_changefeed.config import listed
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.config.keys import LISTS, OLD_VALUE, OTHER_NAMES, ConfigKey, SinkKeys
from tistream_changefeed.config.kinds import SinkKind, kind_of
from tistream_changefeed.config.listed import refused
from tistream_changefeed.config.sink_uri import NO_PEM, SinkUri, is_pem, is_placeholder, placeholder

_REGISTRY = "sink.schema-registry"
_CLAIM_CHECK = "sink.kafka-config.large-message-handle.claim-check-storage-uri"
_FORMS = {_REGISTRY: "http://HOST:PORT or https://HOST:PORT", _CLAIM_CHECK: "s3://BUCKET/PATH or file:///PATH"}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_SECRET_KEY = re.compile(r"password|passphrase|secret|token|private|credential|(^|-)auth|(^|-)key$")
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
    kind = kind_of(sink_uri)
    uri = kind.parse_uri(sink_uri, prefix)
    warnings: list[str] = []
    secrets = _Secrets(prefix, kind.keys)
    shown, values = _without_secrets(document, secrets)
    for key, option in uri.values.items():
        if key in values and str(values[key]).lower() != option.lower():
            warnings.append(f"{key} of the configuration is not used: the sink URI has another value")
        values[key] = option
    fields = _Fields(kind, uri, warnings)
    errors: list[InvalidRequest] = []
    for key, value in values.items():
        try:
            fields.take(key, value)
        except InvalidRequest as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else _several(errors)
    config = fields.config()
    return ParsedFeed(config, uri.shown, shown, {**secrets.values, **uri.secrets}, tuple(warnings))


def _several(errors: Sequence[InvalidRequest]) -> InvalidRequest:
    """One error that has the reasons of several."""
    return refused("; ".join(str(one).removeprefix("config: ") for one in errors))


@dataclass(frozen=True, slots=True)
class _Secrets:
    """Collects the secrets that were replaced by placeholders, by name."""

    prefix: str
    keys: SinkKeys
    values: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, value: str) -> str:
        """Store a secret under its name. Returns the placeholder for it."""
        self.values[self.prefix + name] = value
        return placeholder(self.prefix + name)


def _without_secrets(document: Mapping[str, Any], secrets: _Secrets) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace the secrets of a configuration by placeholders, and add them to `secrets`. Returns (the document with
    the placeholders, its values by dotted key, such as `sink.protocol`). Secrets that the sink does not need are left
    out of the document. Raises InvalidRequest if a PEM option names a file, or the options of an address have a
    secret."""
    values: dict[str, Any] = {}

    def cleaned(part: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in part.items():
            key = f"{prefix}{str(name).replace('_', '-')}"
            key = OTHER_NAMES.get(key, key)
            if isinstance(value, Mapping):
                out[name] = cleaned(value, f"{key}.")
                continue
            shown = _shown(key, value, secrets)
            if value is not None:
                values[key] = shown
            if not (secrets.keys.is_unneeded(key) and _SECRET_KEY.search(key.rpartition(".")[2])):
                out[name] = shown
        return out

    return cleaned(document, ""), values


def _shown(key: str, value: Any, secrets: _Secrets) -> Any:
    if not isinstance(value, str) or not value:
        return value
    used = secrets.keys.used.get(key)
    if used is not None and used.pem and not is_pem(value):
        raise refused(NO_PEM.format(key))
    name = key.rpartition(".")[2]
    if used is not None and used.secret and not is_placeholder(value):
        return secrets.take(name, value)
    if key in (_REGISTRY, _CLAIM_CHECK):
        return _address(key, value, name, secrets)
    return value


def _address(key: str, value: str, name: str, secrets: _Secrets) -> str:
    """Replace the password in an address by a placeholder. Raises InvalidRequest if the value is not a URL, or if
    options of the address have secrets."""
    try:
        parts = urlsplit(value)
    except ValueError:
        raise refused(f"{key} is not a URL: write {_FORMS[key]}") from None
    if _SECRET_OPTION.search(parts.query):
        raise refused(f"{key} has a secret as an option: write ${{secret:NAME}} there, and store the secret")
    user, at, host = parts.netloc.rpartition("@")
    login, colon, password = user.partition(":")
    if not at or not colon or is_placeholder(password):
        return value
    return urlunsplit(parts._replace(netloc=f"{login}:{secrets.take(name, password)}@{host}"))


class _Fields:
    """Collects the fields of a FeedConfig, key by key."""

    def __init__(self, kind: SinkKind, uri: SinkUri, warnings: list[str]) -> None:
        self._kind = kind
        self._values: dict[str, Any] = {"protocol": {}, "filter": {}, **uri.fields}
        self._old_values: dict[str, bool] = {}
        self._warnings = warnings

    def take(self, key: str, value: Any) -> None:
        """Set the field that belongs to a key of the configuration. Raises InvalidRequest if the key is unknown or its
        value is invalid."""
        keys = self._kind.keys
        if any(key.startswith(one) for one in keys.refused):
            raise refused(f"{key}: {next(reason for one, reason in keys.refused.items() if key.startswith(one))}")
        if key in LISTS:
            self._list(key, value)
        elif key in keys.used:
            self._set(keys.used[key].field, _converted(key, keys.used[key], value))
        elif key in OLD_VALUE:
            self._old_values[OLD_VALUE[key]] = _flag(key, value)
        elif key in keys.fixed:
            accepted, reason = keys.fixed[key]
            if str(value).lower() not in accepted:
                raise refused(f"{key} = {str(value)[:40]!r} is not supported: {reason}")
            if key == "tistream.compatible":
                self._set("compatible", True)
        elif keys.is_unneeded(key):
            self._warnings.append(f"{key} is accepted and changes nothing: a feed does not need it")
        else:
            raise refused(f"{key[:120]!r} is unknown{_nearest(key, keys)}")

    def config(self) -> FeedConfig:
        """Build the configuration from the fields. Raises InvalidRequest if a value is invalid, or values contradict
        each other."""
        self._kind.finish(self._values, self._old_values)
        try:
            config = FeedConfig.model_validate(self._values)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            key = next((key for key, used in self._kind.keys.used.items() if used.field == where), where)
            raise refused(f"{key}: {first['msg']}") from None
        self._kind.check(config)
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


def _converted(key: str, used: ConfigKey, value: Any) -> Any:
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
        case "duration" if isinstance(value, int) and not isinstance(value, bool):
            return f"{value}ns"  # as TiCDC's API prints it
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


def _nearest(key: str, keys: SinkKeys) -> str:
    """The end of an error about the unknown key `key`: it offers a known key of the same section that begins with the
    same text or is similar, or else a similar key of another section. Without such a key, it says to remove `key`."""
    known = [*keys.used, *OLD_VALUE, *keys.fixed, *LISTS, *keys.unneeded]
    section, dot, name = key.rpartition(".")
    names = [one.removeprefix(f"{section}{dot}") for one in known if one.rpartition(".")[0] == section]
    near = [one for one in names if one.startswith(name)] or difflib.get_close_matches(name, names, 1, 0.75)
    others = [one for one in known if one.rpartition(".")[0] != section]
    found = [f"{section}{dot}{one}" for one in near] or difflib.get_close_matches(key, others, 1, 0.75)
    return f": is it {found[0]!r}?" if found else ": remove it"
