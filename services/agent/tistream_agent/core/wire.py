"""The field numbers and enum values of TiKV's protobuf package `cdcpb` that the parser needs (upstream-formats 6.4).
Pure."""

from __future__ import annotations

from enum import IntEnum

# Log types of a row.
PREWRITE, COMMIT, ROLLBACK, COMMITTED, INITIALIZED = 1, 2, 3, 4, 5
OP_PUT, OP_DELETE = 1, 2


class EventField(IntEnum):
    """Field numbers of ChangeDataEvent, Event and ResolvedTs."""

    CHANGES = 1
    RESOLVED = 2
    REGION_ID = 1
    ENTRIES = 3
    ERROR = 5
    RESOLVED_TS = 6
    REQUEST_ID = 7
    RESOLVED_REGIONS = 1
    RESOLVED_VALUE = 2
    RESOLVED_REQUEST = 3


class RowField(IntEnum):
    """Field numbers of Event.Row."""

    START_TS = 1
    COMMIT_TS = 2
    TYPE = 3
    OP = 4
    KEY = 5
    VALUE = 6
    OLD_VALUE = 7
    EXPIRE_TS = 8
    TXN_SOURCE = 9
    GENERATION = 10


class ErrorKind(IntEnum):
    """Field numbers of Error. The field that is set is the kind of the error. UNKNOWN: no known field is set; a newer
    TiKV may have others."""

    UNKNOWN = 0
    NOT_LEADER = 1
    REGION_NOT_FOUND = 2
    EPOCH_NOT_MATCH = 3
    DUPLICATE_REQUEST = 4
    COMPATIBILITY = 5
    CLUSTER_ID_MISMATCH = 6
    SERVER_IS_BUSY = 7
    CONGESTED = 8
