"""Parses the entries of TiKV's column families `write` and `default`: versioned keys (a raw key and a timestamp), and
write records (upstream-formats 8). SST files of backups have them too: their blocks are decoded here."""
