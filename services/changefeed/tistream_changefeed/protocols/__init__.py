"""Encodes batches of events as messages, in the Kafka protocols that TiCDC writes. Pure."""
