"""`tistream verify`: consumers whose streams are checked against the rules and the truth."""
