"""Reads a changefeed's Kafka topics back. It decodes messages to events, restores transactions and their order, and
gives each event to a target once."""
