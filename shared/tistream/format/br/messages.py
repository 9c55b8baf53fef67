"""The protobuf messages of full and log backups, built at run time (kvproto `brpb`).

Only the fields that TiStream uses are declared. Protobuf ignores unknown fields, so messages of newer versions of TiKV
can be read. All integers are read as uint64. A negative number becomes a huge one, which exceeds the limits that
callers check.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tistream.errors import CorruptObject

METADATA_BYTES_MAX = 64 << 20  # a flush of one store: some 500 bytes for each region and table

_U64, _TEXT, _BYTES, _MESSAGE = 4, 9, 12, 11  # FieldDescriptorProto.Type
_ONE, _MANY = 1, 3  # FieldDescriptorProto.Label
_MESSAGES: dict[str, tuple[tuple[str, int, int, int, str], ...]] = {
    "FileEncryptionInfo": (("encryption_method", 3, _U64, _ONE, ""),),
    "DataFileInfo": (
        ("sha256", 1, _BYTES, _ONE, ""),
        ("path", 2, _TEXT, _ONE, ""),
        ("number_of_entries", 3, _U64, _ONE, ""),
        ("min_ts", 4, _U64, _ONE, ""),
        ("max_ts", 5, _U64, _ONE, ""),
        ("resolved_ts", 6, _U64, _ONE, ""),
        ("region_id", 7, _U64, _ONE, ""),
        ("start_key", 8, _BYTES, _ONE, ""),
        ("end_key", 9, _BYTES, _ONE, ""),
        ("cf", 10, _TEXT, _ONE, ""),
        ("type", 11, _U64, _ONE, ""),
        ("is_meta", 12, _U64, _ONE, ""),
        ("table_id", 13, _U64, _ONE, ""),
        ("length", 14, _U64, _ONE, ""),
        ("min_begin_ts_in_default_cf", 15, _U64, _ONE, ""),
        ("range_offset", 16, _U64, _ONE, ""),
        ("range_length", 17, _U64, _ONE, ""),
        ("compression_type", 18, _U64, _ONE, ""),
        ("file_encryption_info", 23, _MESSAGE, _ONE, "FileEncryptionInfo"),
    ),
    "DataFileGroup": (
        ("path", 1, _TEXT, _ONE, ""),
        ("data_files_info", 2, _MESSAGE, _MANY, "DataFileInfo"),
        ("min_ts", 3, _U64, _ONE, ""),
        ("max_ts", 4, _U64, _ONE, ""),
        ("min_resolved_ts", 5, _U64, _ONE, ""),
        ("length", 6, _U64, _ONE, ""),
    ),
    "Metadata": (
        ("files", 1, _MESSAGE, _MANY, "DataFileInfo"),
        ("store_id", 2, _U64, _ONE, ""),
        ("resolved_ts", 3, _U64, _ONE, ""),
        ("max_ts", 4, _U64, _ONE, ""),
        ("min_ts", 5, _U64, _ONE, ""),
        ("file_groups", 6, _MESSAGE, _MANY, "DataFileGroup"),
        ("meta_version", 7, _U64, _ONE, ""),
    ),
    "BackupMeta": (
        ("cluster_id", 1, _U64, _ONE, ""),
        ("cluster_version", 2, _TEXT, _ONE, ""),
        ("files", 4, _MESSAGE, _MANY, "File"),
        ("start_version", 5, _U64, _ONE, ""),
        ("end_version", 6, _U64, _ONE, ""),
        ("schemas", 7, _MESSAGE, _MANY, "Schema"),
        ("is_raw_kv", 8, _U64, _ONE, ""),
        ("version", 12, _U64, _ONE, ""),
        ("file_index", 13, _MESSAGE, _ONE, "MetaFile"),
        ("schema_index", 14, _MESSAGE, _ONE, "MetaFile"),
        ("api_version", 18, _U64, _ONE, ""),
        ("is_txn_kv", 21, _U64, _ONE, ""),
    ),
    "MetaFile": (
        ("meta_files", 1, _MESSAGE, _MANY, "File"),
        ("data_files", 2, _MESSAGE, _MANY, "File"),
        ("schemas", 3, _MESSAGE, _MANY, "Schema"),
    ),
    "File": (  # not 12, cipher_iv, which is set in plain backups too
        ("name", 1, _TEXT, _ONE, ""),
        ("sha256", 2, _BYTES, _ONE, ""),
        ("start_key", 3, _BYTES, _ONE, ""),
        ("end_key", 4, _BYTES, _ONE, ""),
        ("total_kvs", 8, _U64, _ONE, ""),
        ("cf", 10, _TEXT, _ONE, ""),
        ("size", 11, _U64, _ONE, ""),
    ),
    "Schema": (
        ("db", 1, _BYTES, _ONE, ""),
        ("table", 2, _BYTES, _ONE, ""),
    ),
    "Migration": (("truncated_to", 2, _U64, _ONE, ""),),
    "LogRestoreTableIDsBlocklistFile": (
        ("restore_commit_ts", 1, _U64, _ONE, ""),
        ("table_ids", 3, _U64, _MANY, ""),
        ("checksum", 4, _BYTES, _ONE, ""),
        ("db_ids", 5, _U64, _MANY, ""),
        ("rewrite_ts", 6, _U64, _ONE, ""),
        ("restore_start_ts", 7, _U64, _ONE, ""),
    ),
}
_PACKAGE = "tistream.br"


def parse(name: str, key: str, data: bytes, bytes_max: int = METADATA_BYTES_MAX) -> Any:
    """Parse the object `key` as the message `name` of this module. Raises CorruptObject if the bytes are not such a
    message, or are more than `bytes_max`."""
    if len(data) > bytes_max:
        raise CorruptObject(key, f"has {len(data)} bytes; no more than {bytes_max} are read")
    try:
        return _classes()[name].FromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise CorruptObject(key, f"is not a protobuf message {name}") from error


def unparse(name: str, values: dict[str, Any]) -> bytes:
    """Encode the message `name` of this module. `values` maps its fields to numbers, texts, bytes, dictionaries (nested
    messages), or lists of numbers or dictionaries."""
    return bytes(_filled(_classes()[name](), values).SerializeToString(deterministic=True))


def _filled(message: Any, values: dict[str, Any]) -> Any:
    for name, value in values.items():
        if isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    _filled(getattr(message, name).add(), one)
                else:
                    getattr(message, name).append(one)
        elif isinstance(value, dict):
            getattr(message, name).SetInParent()
            _filled(getattr(message, name), value)
        else:
            setattr(message, name, value)
    return message


@cache
def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, label, of in fields:
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                added.type_name = f".{_PACKAGE}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }
