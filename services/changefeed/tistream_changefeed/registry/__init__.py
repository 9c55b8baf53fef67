"""Clients of schema registries, which assign ids to the schemas of Avro messages."""
