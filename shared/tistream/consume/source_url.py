"""Parses the sink URI of a changefeed, so that the topic which it names can be read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from tistream.consume import canal_json, open_protocol
from tistream.consume.feed_events import Event
from tistream.errors import InvalidRequest

_RIGHT = "kafka://host:9092/topic?protocol=open-protocol"
Decode = Callable[[bytes | None, bytes | None], list[Event]]
PROTOCOLS: Mapping[str, Decode] = {"open-protocol": open_protocol.decode, "canal-json": canal_json.decode}
# Parameters of the sink URI that state how to reach the brokers, with librdkafka's names for them.
_CLIENT = {
    "ca": "ssl.ca.location",
    "cert": "ssl.certificate.location",
    "key": "ssl.key.location",
    "sasl-user": "sasl.username",
    "sasl-mechanism": "sasl.mechanisms",
}


@dataclass(frozen=True, slots=True)
class SourceUrl:
    """The parsed URL `kafka://host:port,…/topic?protocol=…`. `client` holds settings of librdkafka."""

    brokers: str
    topic: str
    protocol: str
    client: Mapping[str, str]

    @property
    def decode(self) -> Decode:
        """The function that decodes messages of the URL's protocol."""
        return PROTOCOLS[self.protocol]


def parse_source_url(text: str, password: str | None = None) -> SourceUrl:
    """Parse a changefeed's sink URI. `password` is that of SASL; None if none was given. Parameters that only a writer
    needs are ignored. Raises InvalidRequest if the URI is malformed or holds a password, if its protocol cannot be read
    back, or if it names a user of SASL and `password` is None."""
    parts = urlsplit(text)
    if parts.scheme != "kafka":
        raise InvalidRequest(f"the URL must begin with kafka://, such as {_RIGHT}")
    if parts.password is not None or "sasl-password" in dict(parse_qsl(parts.query)):
        raise InvalidRequest("the URL holds a password; put it into a file and name that with --password-file")
    topic = unquote(parts.path.strip("/"))
    if not parts.netloc or not topic or "/" in topic:
        raise InvalidRequest(f"the URL needs brokers and one topic: {_RIGHT}")
    query = dict(parse_qsl(parts.query))
    protocol = query.get("protocol", "open-protocol")
    if protocol not in PROTOCOLS:
        raise InvalidRequest(f"protocol {protocol} cannot be read back; {' and '.join(PROTOCOLS)} can")
    client = {name: query[parameter] for parameter, name in _CLIENT.items() if parameter in query}
    tls = query.get("enable-tls", "false") == "true" or "ca" in query
    sasl = "sasl-user" in query
    client["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    if sasl:
        if password is None:
            raise InvalidRequest("the URL names a sasl-user; name the file with its password: --password-file")
        client.setdefault("sasl.mechanisms", "PLAIN")
        client["sasl.password"] = password
    return SourceUrl(parts.netloc, topic, protocol, client)
