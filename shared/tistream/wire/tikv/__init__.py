"""Messages of PD and TiKV: the fields that TiStream reads and writes, compiled by scripts/tikv-protos."""
