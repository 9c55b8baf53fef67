"""Codecs of TiKV's log backup (docs/log-backup.md): what `br log start` makes TiKV write into a bucket."""
