"""Fingerprints of the events that a feed has sent, by which what a sink holds is compared with what was written."""
