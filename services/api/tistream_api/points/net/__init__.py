"""Net changes between two timestamps, key by key: DiffTable, and pulls with squash=true."""
