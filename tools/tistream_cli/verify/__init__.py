"""`tistream verify`: runs consumers, and checks their streams against the rules and the upstream's truth."""
