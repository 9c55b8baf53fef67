"""Chooses the topic and the partition of each message, by TiCDC's rules. Pure."""
