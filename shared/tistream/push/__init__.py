"""Writers of the push contract (design.md 2)."""
