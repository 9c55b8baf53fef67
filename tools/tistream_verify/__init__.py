"""Rules for streams of events, and the truth that they are compared with. Pure."""
