"""Every error that TiStream raises on purpose, and what a caller should do about each.

* TiStreamError
  + RetryableError            try again, nothing happened
    - Unavailable             a store or peer did not answer
      . KeyUnusable           the key that a tenant's objects are encrypted with cannot be used
    - TooManyRequests         more than a limit allows: later
    - NotFoundYet             the object does not exist (now)
    - CommitConflict          someone else created the object first: read it, decide again
  + CommitStateUnknown        the write may have happened: put the same bytes again, then read back
  + FatalError                trying again cannot help
    - Fenced                  a newer epoch owns this task: stop writing, stop serving
    - CorruptObject           the bytes do not match their checksum or their format
    - InvariantBroken         a rule of docs/invariants.md does not hold: stop this task, keep everything
    - CannotEncode            a protocol has no form for an event
    - SchemaRefused           a schema registry does not accept a schema
    - InvalidRequest          the caller's fault (400; subclasses carry another status)
"""

from __future__ import annotations

from collections.abc import Mapping


class TiStreamError(Exception):
    """The base class of all errors that TiStream raises on purpose. `code` and `http_status` are part of the API, and
    never change."""

    code = "internal"
    http_status = 500


class RetryableError(TiStreamError):
    """An error of a call that has changed nothing; the same call may succeed later."""

    code = "unavailable"
    http_status = 503


class Unavailable(RetryableError):
    """A store or another process did not answer, and nothing has changed. The same call may succeed later."""


class KeyUnusable(Unavailable):
    """The object store cannot use the key that encrypts a tenant's objects: the key is revoked, disabled or deleted, or
    the key management does not answer. Nothing happened; work continues when the key is usable again."""

    code = "key-unusable"


class TooManyRequests(Unavailable):
    """A limit on concurrent requests, or on requests per second, is exceeded. Retry after `retry_after_s` seconds."""

    code = "too-many-requests"
    http_status = 429

    def __init__(self, detail: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class NotFoundYet(RetryableError):
    """The object does not exist now, but may be created later. S3 is consistent, so the answer was true when it was
    given."""

    code = "not-found"
    http_status = 404

    def __init__(self, key: str) -> None:
        super().__init__(f"no object {key}")
        self.key = key


class CommitConflict(RetryableError):
    """The object exists already, or does not have the expected version: another writer (or an earlier attempt of this
    one) has written it."""

    code = "conflict"
    http_status = 409

    def __init__(self, key: str) -> None:
        super().__init__(f"object exists: {key}")
        self.key = key


class CommitStateUnknown(TiStreamError):
    """No answer came to a conditional write, so the write may have happened. Read the object back before you decide."""

    code = "commit-state-unknown"
    http_status = 503

    def __init__(self, key: str, reason: str = "") -> None:
        super().__init__(f"unknown whether the write happened: {key}{f' ({reason})' if reason else ''}")
        self.key = key
        self.reason = reason


class FatalError(TiStreamError):
    """Repeating the call cannot help. Subclasses say what a caller should do."""


class Fenced(FatalError):
    """A newer epoch owns this task. The process must drop the task's state and stop working on it."""

    code = "fenced"
    http_status = 412

    def __init__(self, what: str, *, held_epoch: int, current_epoch: int) -> None:
        super().__init__(f"{what}: held epoch {held_epoch}, current epoch {current_epoch}")
        self.held_epoch = held_epoch
        self.current_epoch = current_epoch


class CorruptObject(FatalError):
    """The bytes of an object do not match their checksum, their format, or the identity that the object's key
    states."""

    code = "corrupt-object"

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class InvariantBroken(FatalError):
    """A rule of docs/invariants.md does not hold. The task stops with an error and keeps its data."""

    code = "invariant-broken"

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"invariant {number}: {reason}")
        self.number = number


class CannotEncode(FatalError):
    """The protocol of a changefeed has no form for an event. The error text names the event and what to do."""

    code = "cannot-encode"


class SchemaRefused(FatalError):
    """A schema registry does not accept a schema. The error text has the schema, the conflicting schema, and what to
    do."""

    code = "schema-refused"


class InvalidRequest(FatalError):
    """The caller made a mistake in the request. The HTTP answer is an RFC 9457 problem, to which the members of `extra`
    are added."""

    code = "bad-request"
    http_status = 400

    def __init__(self, detail: str, extra: Mapping[str, object] | None = None) -> None:
        super().__init__(detail)
        self.extra = dict(extra or {})


class UnknownName(InvalidRequest):
    """No cluster, tenant, database or table has the requested name."""

    code = "unknown-name"
    http_status = 404


class Unauthenticated(InvalidRequest):
    """The request is not authenticated: it has no token, or the token is invalid, expired or revoked."""

    code = "unauthenticated"
    http_status = 401


class Forbidden(InvalidRequest):
    """The caller may not do this. The error is the same whether the object exists or not, so it reveals nothing."""

    code = "forbidden"
    http_status = 403


class AlreadyDiffers(InvalidRequest):
    """An object of this name exists already, and its properties differ from the requested ones."""

    code = "already-differs"
    http_status = 409


class LimitReached(InvalidRequest):
    """A limit on the number of objects is reached. The caller must remove an object before it can create another."""

    code = "limit-reached"
    http_status = 409


class QuotaReached(InvalidRequest):
    """The tenant's quota is used up: remove some data, or ask the operator for more."""

    code = "quota-reached"
    http_status = 429


class AuthOff(InvalidRequest):
    """The call needs an authenticated caller, and authentication is disabled on this server."""

    code = "auth-off"
    http_status = 409


class SecretsOff(InvalidRequest):
    """The call stores a secret, and this server has no key to encrypt it with."""

    code = "secrets-off"
    http_status = 409


class Superseded(InvalidRequest):
    """Another process has registered later under this process's name. This process must end."""

    code = "superseded"
    http_status = 409


class ClaimEnded(InvalidRequest):
    """This process no longer has the right to do the work that it claimed: another process has claimed the work, or the
    work has ended. Stop the work."""

    code = "claim-ended"
    http_status = 409


class TargetNotAllowed(InvalidRequest):
    """The settings do not allow a restore to write to its target. The error text states why, and what to do."""

    code = "target-not-allowed"
    http_status = 422


class Gone(InvalidRequest):
    """The requested ts is so old that retention may have removed its rows. `earliest_ts` is the lowest ts that can be
    read."""

    code = "gone"
    http_status = 410


class SourceRefused(InvalidRequest):
    """TiStream cannot read the data at the location of a source. The error text states what is there, and what to
    do."""

    code = "source-refused"
    http_status = 422


class Undecodable(InvalidRequest):
    """The requested range has a row that no known version of its table's schema can decode."""

    code = "undecodable-row"
    http_status = 422
