"""Fingerprints of the events that a feed has sent. A check compares them with the fingerprints of what the sink
holds."""
