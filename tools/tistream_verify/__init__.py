"""Rules for streams of events, and the upstream's truth with which they are compared. Pure."""
