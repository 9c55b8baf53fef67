"""Reads a changefeed's Kafka topics back: messages to events, in transactions and in order, each once."""
