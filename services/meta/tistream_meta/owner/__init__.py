"""The election of the owner, and the work that only the owner does: scheduling, and publishing routes."""
