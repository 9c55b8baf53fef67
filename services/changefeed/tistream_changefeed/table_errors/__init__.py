"""The rules of the configuration for events that cannot be sent: whether the table stops, the feed stops, or a dead
letter is written. Pure."""
