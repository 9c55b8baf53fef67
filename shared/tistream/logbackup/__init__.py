"""Codecs of TiKV's log backup (docs/log-backup.md): the objects that TiKV writes into a bucket after `br log start`."""
