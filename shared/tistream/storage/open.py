"""Object stores by URL: a string travels into Spark executors and settings where an open client cannot."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tistream.errors import InvalidRequest
from tistream.storage.directory import DirectoryObjectStore
from tistream.storage.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore

_S3_OPTIONS = {"endpoint", "region"}


def open_objects(url: str) -> ObjectStore:
    """Open the store that `url` names.

    `/path` or `file:///path`: a directory. `s3://bucket[/prefix][?endpoint=http://…&region=…]`: S3; credentials
    come from boto3's usual places, never from the URL. `memory:` a new, empty store of this process.

    Raises:
        InvalidRequest: the URL names no known kind of store.
        Unavailable: a directory cannot be made.
    """
    if url == "memory:":
        return MemoryObjectStore()
    if "://" not in url:
        if url.startswith(("/", "./", "../")):
            return DirectoryObjectStore(Path(url))
        raise InvalidRequest(f"object store {url!r} is neither a path (/…, ./…) nor a URL (file://, s3://, memory:)")
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and not parts.query:
        return DirectoryObjectStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc and "@" not in parts.netloc:
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := options.keys() - _S3_OPTIONS:
            raise InvalidRequest(f"object store {url!r}: unknown option {sorted(unknown)[0]!r}")
        prefix = unquote(parts.path).strip("/")
        from tistream.storage.s3 import S3ObjectStore  # noqa: PLC0415  # boto3 takes 0.3 s to import

        return S3ObjectStore(
            parts.netloc,
            f"{prefix}/" if prefix else "",
            endpoint=options.get("endpoint"),
            region=options.get("region"),
        )
    raise InvalidRequest(f"object store {url!r} is neither a path nor a file://, s3:// or memory: URL")
