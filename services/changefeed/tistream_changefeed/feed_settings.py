"""A feed's sink URI and configuration, as what runs it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tistream.errors import InvalidRequest
from tistream_changefeed.dispatch.dispatchers import Dispatchers
from tistream_changefeed.hold.sink import Pipeline
from tistream_changefeed.pipeline import FeedPipeline, Framing
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.limits import Limit
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.rows.split import by_unique_index
from tistream_changefeed.sinks.kafka.kafka_uri import parse
from tistream_changefeed.sinks.kafka.target import KafkaTarget

BATCH_EVENTS = 16  # `max-batch-size` of open-protocol, if it is not given


@dataclass(frozen=True, slots=True)
class ParsedFeed:
    """What runs a feed: its target, the pipeline of its events, and warnings for its user."""

    target: KafkaTarget
    pipeline: Pipeline
    warnings: tuple[str, ...]


def parsed(sink_uri: str, config: Mapping[str, Any]) -> ParsedFeed:
    """Parse a sink URI and a configuration. Raises InvalidRequest, which names what is wrong, and never a secret."""
    if config:
        name = sorted(config)[0][:80]
        raise InvalidRequest(f"config: {name}: keys of a configuration are not supported yet", {"parameter": "config"})
    uri = parse(sink_uri)
    options = _Options(dict(uri.options))
    limit = Limit(uri.target.max_message_bytes)
    encoder, framing = _encoder(uri.protocol, options, limit)
    options.end(uri.protocol)
    pipeline = FeedPipeline(encoder, Dispatchers((), uri.target.topic), by_unique_index, framing)
    return ParsedFeed(uri.target, pipeline, uri.warnings)


def _encoder(protocol: str, options: _Options, limit: Limit) -> tuple[Encoder, Framing | None]:
    if protocol in ("open-protocol", "default"):
        framing = Framing(options.number("max-batch-size", BATCH_EVENTS, 1, 10_000), limit.bytes_max)
        opened = OpenOptions(
            only_output_updated_columns=options.flag("only-output-updated-columns"),
            delete_only_output_handle_key_columns=options.flag("delete-only-output-handle-key-columns"),
            limit=limit,
        )
        return OpenProtocol(opened), framing
    if protocol == "canal-json":
        canal = CanalOptions(
            enable_tidb_extension=options.flag("enable-tidb-extension"),
            content_compatible=options.flag("content-compatible"),
            only_output_updated_columns=options.flag("only-output-updated-columns"),
            delete_only_output_handle_key_columns=options.flag("delete-only-output-handle-key-columns"),
            limit=limit,
        )
        return CanalJson(canal), None
    raise _bad(f"protocol {protocol[:80]!r} is not supported; there are open-protocol and canal-json")


@dataclass(slots=True)
class _Options:
    """Options of a URI that nothing has read yet."""

    left: dict[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> bool:
        """A flag, false by default."""
        text = self.left.pop(name, "false")
        if text not in ("true", "false"):
            raise _bad(f"{name} is true or false")
        return text == "true"

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A number within bounds."""
        text = self.left.pop(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 13 and low <= int(text) <= high):
            raise _bad(f"{name} is a number from {low} to {high}")
        return int(text)

    def end(self, protocol: str) -> None:
        """Refuse what is left."""
        if self.left:
            raise _bad(f"{sorted(self.left)[0][:80]} is not an option that {protocol} supports")


def _bad(reason: str) -> InvalidRequest:
    return InvalidRequest(f"sink_uri: {reason}", {"parameter": "sink_uri"})
