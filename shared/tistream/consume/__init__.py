"""Reads a changefeed's Kafka topics back: `tistream consume`. It decodes messages to events, restores transactions and
their order, and gives each event exactly once to a target, such as a MySQL server."""
