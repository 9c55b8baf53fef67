"""What was changed, by whom, from where, what from, what to (docs/adr/0022-an-audit-log.md)."""
