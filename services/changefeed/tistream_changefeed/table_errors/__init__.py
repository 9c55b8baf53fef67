"""What an event that cannot be sent does to its table: by rules of the configuration. Pure."""
