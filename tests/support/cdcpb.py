"""`cdcpb` messages as protobuf classes, built from the field numbers of the facts: a second opinion to the scanner."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KINDS = {"u64": 4, "i32": 5, "bytes": 12, "string": 9, "u32": 13, "bool": 8}
_MESSAGES: dict[str, list[tuple[str, int, str, bool, bool]]] = {  # name, number, kind, repeated, in the oneof
    "Peer": [("id", 1, "u64", False, False), ("store_id", 2, "u64", False, False)],
    "NotLeader": [("region_id", 1, "u64", False, False), ("leader", 2, "Peer", False, False)],
    "Named": [("region_id", 1, "u64", False, False)],
    "EpochNotMatch": [("regions", 1, "Named", True, False)],
    "Compatibility": [("required_version", 1, "string", False, False)],
    "ClusterIDMismatch": [("current", 1, "u64", False, False), ("request", 2, "u64", False, False)],
    "ServerIsBusy": [("reason", 1, "string", False, False), ("backoff_ms", 2, "u64", False, False)],
    "Error": [
        ("not_leader", 1, "NotLeader", False, False),
        ("region_not_found", 2, "Named", False, False),
        ("epoch_not_match", 3, "EpochNotMatch", False, False),
        ("duplicate_request", 4, "Named", False, False),
        ("compatibility", 5, "Compatibility", False, False),
        ("cluster_id_mismatch", 6, "ClusterIDMismatch", False, False),
        ("server_is_busy", 7, "ServerIsBusy", False, False),
        ("congested", 8, "Named", False, False),
    ],
    "Row": [
        ("start_ts", 1, "u64", False, False),
        ("commit_ts", 2, "u64", False, False),
        ("type", 3, "i32", False, False),
        ("op_type", 4, "i32", False, False),
        ("key", 5, "bytes", False, False),
        ("value", 6, "bytes", False, False),
        ("old_value", 7, "bytes", False, False),
        ("expire_ts_unix_secs", 8, "u64", False, False),
        ("txn_source", 9, "u64", False, False),
        ("generation", 10, "u64", False, False),
    ],
    "Entries": [("entries", 1, "Row", True, False)],
    "Admin": [("cmd", 1, "bytes", False, False)],
    "Event": [
        ("region_id", 1, "u64", False, False),
        ("index", 2, "u64", False, False),
        ("request_id", 7, "u64", False, False),
        ("entries", 3, "Entries", False, True),
        ("admin", 4, "Admin", False, True),
        ("error", 5, "Error", False, True),
        ("resolved_ts", 6, "u64", False, True),
        ("long_txn", 8, "Admin", False, True),
    ],
    "ResolvedTs": [
        ("regions", 1, "u64", True, False),
        ("ts", 2, "u64", False, False),
        ("request_id", 3, "u64", False, False),
    ],
    "ChangeDataEvent": [("events", 1, "Event", True, False), ("resolved_ts", 2, "ResolvedTs", False, False)],
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="cdcpb_of_tests.proto", package="cdcpb_of_tests", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if any(field[4] for field in fields):
            message.oneof_decl.add(name="event")
        for field, number, kind, repeated, in_oneof in fields:
            added = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in _KINDS:
                added.type = _KINDS[kind]  # type: ignore[assignment]
            else:
                added.type, added.type_name = 11, f".cdcpb_of_tests.{kind}"  # type: ignore[assignment]
            if in_oneof:
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"cdcpb_of_tests.{name}"))
        for name in _MESSAGES
    }


CLASSES = _classes()
ChangeDataEvent: Any = CLASSES["ChangeDataEvent"]
Event: Any = CLASSES["Event"]
Row: Any = CLASSES["Row"]
Error: Any = CLASSES["Error"]
