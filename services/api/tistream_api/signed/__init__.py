"""Signs URLs with which readers fetch a table's row groups from the object store (docs/adr/0035-signed-ranges.md)."""
