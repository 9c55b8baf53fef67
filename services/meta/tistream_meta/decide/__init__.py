"""Pure decisions: placement, splits and merges, liveness, which dispatcher reads which store."""
