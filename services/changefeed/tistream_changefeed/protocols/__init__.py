"""Messages of the Kafka protocols that TiCDC writes, for whole batches of events. Pure."""
