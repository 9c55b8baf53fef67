"""Uploads large objects to S3 in parts. The object exists after the last request; if a request fails, nothing is
left."""

from __future__ import annotations

import base64
import io
import logging
import zlib
from dataclasses import dataclass, field
from typing import Any

from tistream.storage.backends.s3_errors import S3Error, code_of
from tistream.storage.multipart import parts_of
from tistream.storage.object_store import Body

log = logging.getLogger(__name__)


class ViewFile(io.RawIOBase):
    """A memoryview as a file. botocore accepts no views, and a copy of a large body would double its memory."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        piece = self._view[self._at : self._at + len(target)]
        target[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence])
        return self._at

    def tell(self) -> int:
        return self._at


def crc32_of(body: Body) -> str:
    """The CRC-32 of a body in S3's format, to be sent in a header. Otherwise botocore would send its own CRC after the
    body over TLS, in chunks, and MinIO closes the connection after each such request."""
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


class PartsMissing(Exception):
    """Raised if an upload fails before its last request, so that the object was not written. The exception's cause has
    the reason."""


@dataclass(frozen=True, slots=True)
class PartsUpload:
    """The upload of one object to `target` (Bucket, Key). `client` and `once` are S3 clients: `client` retries
    requests, and `once` does not. `sealed`: the parameters of the object's encryption."""

    client: Any
    once: Any
    target: dict[str, str]
    part_bytes: int
    sealed: dict[str, str] = field(default_factory=dict)

    def put(self, body: memoryview, condition: dict[str, str]) -> None:
        """Upload `body`, which must not be empty. With a condition (IfNoneMatch, IfMatch), the last request is sent
        only once.

        On any error the upload is aborted; if that fails too, its id is logged, because the parts that remain cost
        money.

        Raises:
            PartsMissing: a request before the last one failed.
            S3Error: the last request failed.
        """
        # S3 itself compares the whole object with its CRC-32, and returns the CRC-32 when the whole object is read.
        whole = {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}
        try:
            upload = {
                **self.target,
                "UploadId": self.client.create_multipart_upload(**self.target, **self.sealed, **whole)["UploadId"],
            }
        except S3Error as error:
            raise PartsMissing from error
        try:
            self._complete(upload, body, self._uploaded(upload, body), condition)
        except BaseException:
            self._abort(upload)
            raise

    def _uploaded(self, upload: dict[str, str], body: memoryview) -> list[dict[str, Any]]:
        try:
            return [
                self._part(upload, number, part) for number, part in enumerate(parts_of(body, self.part_bytes), start=1)
            ]
        except S3Error as error:
            raise PartsMissing from error

    def _complete(
        self, upload: dict[str, str], body: memoryview, parts: list[dict[str, Any]], condition: dict[str, str]
    ) -> None:
        crc32 = crc32_of(body)
        try:
            (self.once if condition else self.client).complete_multipart_upload(
                **upload,
                MultipartUpload={"Parts": parts},
                ChecksumType="FULL_OBJECT",
                ChecksumCRC32=crc32,
                **condition,
            )
        except S3Error:
            # If the first attempt succeeded and its answer was lost, a second attempt of botocore finds no upload. With
            # a condition the caller must then find out who wrote the object, because another writer may have put the
            # same bytes.
            if condition or not self._is_there(len(body), crc32):
                raise

    def _part(self, upload: dict[str, str], number: int, part: memoryview) -> dict[str, Any]:
        done = self.client.upload_part(**upload, PartNumber=number, Body=ViewFile(part), ChecksumCRC32=crc32_of(part))
        return {"PartNumber": number, **{name: done[name] for name in ("ETag", "ChecksumCRC32") if name in done}}

    def _is_there(self, size: int, crc32: str) -> bool:
        try:
            found = self.client.head_object(**self.target, ChecksumMode="ENABLED")
        except S3Error:
            return False
        return (found["ContentLength"], found.get("ChecksumCRC32")) == (size, crc32)

    def _abort(self, upload: dict[str, str]) -> None:
        try:
            self.client.abort_multipart_upload(**upload)
        except S3Error as error:
            if code_of(error) == "NoSuchUpload":  # the upload was completed, and the answer was lost
                return
            log.warning("cannot abort a multipart upload: its parts cost money", extra={**upload, "error": str(error)})
