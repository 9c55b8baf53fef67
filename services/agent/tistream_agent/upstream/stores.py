"""gRPC channels to PD and to TiKV stores, with the client certificate that both require if TLS is on.

upstream-formats 6.4 has the calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc

from tistream.errors import InvalidRequest
from tistream.wire.tikv import kvrpcpb_pb2 as kvrpcpb

MESSAGE_BYTES_MAX = 256 << 20  # one row of TiKV may take as much
_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.lookahead_bytes", 8 << 20),  # the flow-control window; the default is too small across zones
    ("grpc.use_local_subchannel_pool", 1),  # a new channel makes a new connection, with the certificate of now
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3_000),
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the TiDB cluster: its certificate authority, and a client certificate with its key that the cluster
    accepts."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Read the files, and return the credentials; None if no authority is set. Raises InvalidRequest if a file
        cannot be read, or if another one must be set too."""
        if self.ca is None:
            if self.cert is not None or self.key is not None:
                raise InvalidRequest("--cert and --key need --ca, the authority of PD's and TiKV's certificates")
            return None
        if (self.cert is None) != (self.key is None):
            raise InvalidRequest("--cert and --key go together: give both, or none")
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))


class Channels:
    """Opens channels. The certificate files are read for each channel, so a rotated certificate is used from the next
    channel on."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls

    def open(self, address: str) -> grpc.Channel:
        """Create a channel to `host:port` or `http(s)://host:port`. It connects at its first use. Raises InvalidRequest
        if the address is malformed or requires TLS that is not set up, or if a certificate file cannot be read."""
        target = host_and_port(address)
        credentials = self._tls.credentials()
        if credentials is None:
            if address.startswith("https://"):
                raise InvalidRequest(f"{address} requires TLS: name the cluster's authority with --ca")
            return grpc.insecure_channel(target, options=_OPTIONS)
        return grpc.secure_channel(target, credentials, options=_OPTIONS)


def refusal_of(channels: Channels, address: str, call_s: float) -> str:
    """Call a TiKV store for up to `call_s` seconds. Returns the gRPC error; an empty text if a response comes, even one
    with a region error. Raises InvalidRequest as Channels.open does."""
    try:
        with channels.open(address) as channel:
            channel.unary_unary(
                "/tikvpb.Tikv/KvScan",
                request_serializer=kvrpcpb.ScanRequest.SerializeToString,
                response_deserializer=kvrpcpb.ScanResponse.FromString,
            )(kvrpcpb.ScanRequest(limit=1, version=1), timeout=call_s)
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call):
            return f"{error.code().name}: {error.details()}"
        return str(error)
    return ""


def host_and_port(address: str) -> str:
    """Remove the scheme, if there is one, from an address. Returns `host:port`. Raises InvalidRequest if the address
    lacks one of the two, or has a path."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or port is None or parts.path not in ("", "/"):
        raise InvalidRequest(f"address {address!r} is not host:port")
    return parts.netloc


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(
            f"certificate file {path} cannot be read: {error.strerror}; name a readable PEM file"
        ) from error
