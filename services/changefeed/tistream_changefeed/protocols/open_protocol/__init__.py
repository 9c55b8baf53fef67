"""Encodes events in TiCDC's open protocol: as JSON, several events in one Kafka message."""
