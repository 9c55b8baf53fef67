"""Parses the objects of a log backup (docs/log-backup.md), which TiKV writes into a bucket after `br log start`."""
