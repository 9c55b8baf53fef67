"""Opens object stores by URL. A URL can be a setting, and can be sent to Spark executors, which an open store
cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tistream.errors import InvalidRequest
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore

_S3_OPTIONS = ("endpoint", "region")


@dataclass(frozen=True, slots=True)
class _Bucket:
    name: str
    prefix: str
    endpoint: str | None
    region: str | None


def check_url(url: str) -> None:
    """Check that `open_objects` accepts a URL, without opening the store. Raises InvalidRequest."""
    _place(url)


@dataclass(frozen=True, slots=True)
class S3Access:
    """Credentials of S3."""

    access_key: str
    secret_key: str = field(repr=False)


def open_objects(url: str, access: S3Access | None = None, answer_s: float | None = None) -> ObjectStore:
    """Open the store that `url` names.

    `/path` or `file:///path`: a directory. `s3://bucket[/prefix][?endpoint=http://…&region=…]`: S3; with `access` None,
    boto3 finds the credentials in its usual places. They are never in the URL. `memory:` a new, empty store of this
    process. `answer_s`: each request to S3 is sent once, and waits this many seconds for its answer; None: the store
    retries requests.

    Raises:
        InvalidRequest: the URL names no known kind of store; the text does not show a password in the URL.
        Unavailable: a directory cannot be created.
    """
    place = _place(url)
    if place is None:
        return MemoryObjectStore()
    if isinstance(place, Path):
        return DirectoryObjectStore(place)
    from tistream.storage.backends.s3 import S3ObjectStore  # noqa: PLC0415  # boto3 takes 0.3 s to import

    waits: dict[str, Any] = {} if answer_s is None else {"read_seconds": answer_s, "attempts": 1}
    return S3ObjectStore(
        place.name,
        place.prefix,
        endpoint=place.endpoint,
        region=place.region,
        access_key=None if access is None else access.access_key,
        secret_key=None if access is None else access.secret_key,
        **waits,
    )


def open_existing(url: str, access: S3Access | None = None, answer_s: float | None = None) -> ObjectStore:
    """Open a store that other programs write. Like open_objects, but no directory is created: raises InvalidRequest if
    it does not exist."""
    place = _place(url)
    if isinstance(place, Path) and not place.is_dir():
        raise InvalidRequest(f"there is no directory {place}")
    return open_objects(url, access, answer_s)


def open_unchanged(url: str, access: S3Access | None = None) -> ObjectStore:
    """Open a store for a caller that only reads. Like open_objects, but no directory is created: one that does not
    exist is an empty store in memory."""
    place = _place(url)
    if isinstance(place, Path) and not place.exists():
        return MemoryObjectStore()
    return open_objects(url, access)


def _place(url: str) -> _Bucket | Path | None:
    """Parse a URL to a bucket, a directory, or None for a store in memory. Raises InvalidRequest."""
    if url == "memory:":
        return None
    if "://" not in url:
        if url.startswith(("/", "./", "../")):
            return Path(url)
        raise InvalidRequest(f"object store {url!r} is neither a path (/…, ./…) nor a URL (file://, s3://, memory:)")
    parts = _split("object store", url)
    shown = f"object store {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and not parts.query:
        return Path(unquote(parts.path))
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidRequest(f"{shown} is neither a path nor a file://, s3:// or memory: URL")
    if "@" in parts.netloc:
        raise InvalidRequest(f"{shown}: the URL must not contain credentials; boto3 finds them (AWS_ACCESS_KEY_ID, …)")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_S3_OPTIONS)):
        raise InvalidRequest(f"{shown}: unknown option {unknown[0]!r}; known are {', '.join(_S3_OPTIONS)}")
    if "endpoint" in options:
        _check_endpoint(shown, options["endpoint"])
    prefix = unquote(parts.path).strip("/")
    return _Bucket(parts.netloc, f"{prefix}/" if prefix else "", options.get("endpoint"), options.get("region"))


def _check_endpoint(shown: str, endpoint: str) -> None:
    parts = _split(f"{shown}: its endpoint", endpoint)
    if "@" in parts.netloc:
        raise InvalidRequest(f"{shown}: its endpoint must not contain credentials")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise InvalidRequest(f"{shown}: its endpoint should look like http://host:9000")


def _split(what: str, url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # a port is parsed, and so checked, only on access
    except ValueError:  # the text of the error may contain parts of the URL
        raise InvalidRequest(f"{what} is not a URL") from None
    return parts
