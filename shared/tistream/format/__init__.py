"""Codecs of the objects that TiStream reads and writes (docs/formats.md). Pure."""
