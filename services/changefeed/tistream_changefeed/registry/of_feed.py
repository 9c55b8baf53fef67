"""Builds the client of a feed's schema registry."""

from __future__ import annotations

from collections.abc import Mapping

from tistream.errors import InvalidRequest
from tistream.secrets.references import filled
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.registry.address import with_secrets
from tistream_changefeed.registry.confluent import ConfluentRegistry
from tistream_changefeed.tls import BadPem, trusting


def registry_of(config: FeedConfig, values: Mapping[str, str]) -> ConfluentRegistry | None:
    """Build the client of the registry that a configuration names; None if it names no registry. `values` are the
    values of the secrets, by name. The certificate authority `ca` of the brokers is trusted in addition to those of the
    system. Raises InvalidRequest if `ca` cannot be read."""
    url = config.protocol.schema_registry
    if url is None:
        return None
    tls = None
    if config.kafka.ca is not None:
        try:
            tls = trusting(filled(config.kafka.ca, values), "ca", others=True)
        except BadPem as error:
            raise InvalidRequest(f"sink_uri or config: {error}", {"parameter": "sink_uri"}) from error
    return ConfluentRegistry(with_secrets(url, values), tls=tls)
