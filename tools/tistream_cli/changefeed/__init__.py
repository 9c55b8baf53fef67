"""`tistream changefeed …`: feeds that write a tenant's changes into other systems."""
