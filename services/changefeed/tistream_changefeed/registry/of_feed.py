"""Builds the client of a feed's schema registry."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from tistream.secrets.references import filled
from tistream_changefeed.config.feed_config import FeedConfig
from tistream_changefeed.registry.address import with_secrets
from tistream_changefeed.registry.confluent import ConfluentRegistry


def registry_of(config: FeedConfig, values: Mapping[str, str]) -> ConfluentRegistry | None:
    """Build the client of the registry that a configuration names; None if it names no registry. `values` are the
    values of the secrets, by name. The certificate authority `ca` of the brokers is trusted in addition to those of the
    system."""
    url = config.protocol.schema_registry
    if url is None:
        return None
    tls = None
    if config.kafka.ca is not None:
        tls = ssl.create_default_context()
        tls.load_verify_locations(cadata=filled(config.kafka.ca, values))
    return ConfluentRegistry(with_secrets(url, values), tls=tls)
