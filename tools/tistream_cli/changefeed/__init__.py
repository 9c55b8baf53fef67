"""`tistream changefeed …` and `tistream secret …`: changefeeds write a tenant's changes into other systems, such as
Kafka."""
