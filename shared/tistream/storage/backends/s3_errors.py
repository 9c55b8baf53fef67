"""Converts errors of S3 to TiStream's errors, with advice for the operator."""

from __future__ import annotations

from dataclasses import dataclass, field

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    SSLError,
)

from tistream.errors import (
    CommitConflict,
    CommitStateUnknown,
    KeyUnusable,
    NotFoundYet,
    TiStreamError,
    Unavailable,
)
from tistream.storage import layout
from tistream.storage.backends.tenant_keys import TenantKeys

S3Error = (ClientError, BotoCoreError)  # all exceptions that a client raises on purpose
MISSING = ("NoSuchKey", "404", "NotFound")  # an answer to HEAD has no body, and therefore no error code but the status
NEVER_SENT = (  # SSLError is not included, because it also happens to answers
    EndpointConnectionError,
    ConnectTimeoutError,
    NoCredentialsError,
    PartialCredentialsError,
    ParamValidationError,
)
_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or whatever else boto3 finds, to valid credentials"
_PERMISSIONS = (
    "grant s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on objects, and s3:ListBucket on "
    "the bucket (without it a missing object is an access denied)"
)
_REGION = "state the bucket's region in the URL (s3://…?region=…)"
_OVERLOADED = "the store is overloaded; requests that are safe to repeat are retried with growing pauses"
_BUCKET = "make the bucket, or correct the URL's bucket and endpoint"
_KEY = "work continues when the key can be used again (kms:GenerateDataKey, kms:Decrypt)"
_KMS = "kms"  # prefix of the codes of key management errors: in upper case by AWS, in lower by MinIO
_MINIO_CODE = "x-minio-error-code"  # the code of an answer to HEAD, which has no body
CONDITIONS = "TiStream commits by PUTs with If-None-Match and If-Match: use a store that honours them"
_WAYS_OUT = {
    "NoSuchBucket": _BUCKET,
    "InvalidBucketName": _BUCKET,
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "AccessDenied": _PERMISSIONS,
    "403": f"{_CREDENTIALS}; {_PERMISSIONS}",
    "PermanentRedirect": _REGION,
    "301": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "RequestTimeTooSkewed": "set this machine's clock",
    "SlowDown": _OVERLOADED,
    "503": _OVERLOADED,
    "NotImplemented": CONDITIONS,
    "NoSuchUpload": "something ended the multipart upload before it was complete: look at the bucket's lifecycle rules",
}


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The location of a store's objects (bucket, prefix, endpoint). It builds the errors, whose texts name the
    location."""

    bucket: str
    prefix: str
    endpoint: str | None
    keys: TenantKeys = field(default_factory=TenantKeys)

    def read_error(self, operation: str, key: str, error: Exception) -> TiStreamError:
        """Convert the error of a GET or HEAD of one object: NotFoundYet if the object does not exist, KeyUnusable if
        its encryption key is not available, and otherwise Unavailable."""
        missing = code_of(error) in MISSING and not of_key(error)
        return NotFoundYet(key) if missing else self.unavailable(operation, key, error)

    def conditional_error(self, condition: str, key: str, error: Exception) -> TiStreamError:
        """Convert the error of a conditional put that was sent once: CommitConflict if the condition did not hold,
        Unavailable if nothing happened, CommitStateUnknown if the put may have happened."""
        status = status_of(error)
        gone = condition == "IfMatch" and code_of(error) in MISSING
        if status == 412 or gone:
            return CommitConflict(key)
        refused = status == 501 or (400 <= status < 500 and status not in (408, 409, 429))
        unavailable = self.unavailable(f"PutObject with {condition}", key, error)
        never = refused or of_key(error) or isinstance(error, NEVER_SENT)
        return unavailable if never else CommitStateUnknown(key, str(unavailable))

    def unavailable(self, operation: str, key: str, error: BaseException | None) -> Unavailable:
        """Build an error that names the operation, the object, the store's own message, and what to do. It is
        KeyUnusable if the object's encryption key is not available."""
        code = code_of(error)
        if isinstance(error, ClientError):
            said = f"{code} ({status_of(error)}): {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")
        else:
            said = str(error)
        if of_key(error):
            return KeyUnusable(f"{self._key_of(key)} cannot be used: {self._message(operation, key, said, _KEY)}")
        return self.refused(operation, key, said, _WAYS_OUT.get(code) or _way_out_of(error))

    def missing_bucket(self, operation: str, key: str) -> Unavailable:
        """Build the error for a missing bucket, after a HEAD answered 404."""
        return self.refused(operation, key, "NoSuchBucket (404)", _BUCKET)

    def refused(self, operation: str, key: str, said: str, way_out: str = "") -> Unavailable:
        """Build an error like `unavailable`, but with the message `said` in place of the store's own. `way_out`: what
        the operator can do; empty: unknown."""
        return Unavailable(self._message(operation, key, said, way_out))

    def _message(self, operation: str, key: str, said: str, way_out: str) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"{operation} s3://{self.bucket}/{self.prefix}{key}{at}: {said}{'; ' if way_out else ''}{way_out}"

    def _key_of(self, key: str) -> str:
        """The name of the object's encryption key, for a message. The object may have been written under an earlier key
        of the tenant."""
        tenant = layout.tenant_of(key)
        known = self.keys.known(tenant)
        whose = "the bucket" if tenant is None else f"tenant {tenant}"
        return f"an encryption key of {whose}" if known is None else f"encryption key {known} of {whose}"


def code_of(error: BaseException | None) -> str:
    """S3's error code, such as `NoSuchKey`; empty if no answer came."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def status_of(error: BaseException | None) -> int:
    """The HTTP status of the answer; 0 if no answer came."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def of_key(error: BaseException | None) -> bool:
    """Whether the error says that the store's key management or the encryption key is not available."""
    if not isinstance(error, ClientError):
        return False
    found = error.response.get("Error", {})
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    codes = (str(found.get("Code", "")), str(headers.get(_MINIO_CODE, "")))
    if any(code.lower().startswith((f"{_KMS}.", f"{_KMS}:")) for code in codes):
        return True
    # AWS denies access to a KMS key and to an object with the same code; only the message differs.
    return codes[0] == "AccessDenied" and f"{_KMS}:" in str(found.get("Message", ""))


def _way_out_of(error: BaseException | None) -> str:
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return _CREDENTIALS
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError, SSLError)):
        return "check that the URL's endpoint is right and can be reached from here"
    return ""
