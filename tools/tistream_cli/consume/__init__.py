"""`tistream consume`: reads a changefeed's Kafka topics, and writes the changes to stdout, a file or a MySQL server."""
