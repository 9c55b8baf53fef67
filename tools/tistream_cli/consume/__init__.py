"""`tistream consume`: reads a changefeed's topics into a file, a stream or a server."""
