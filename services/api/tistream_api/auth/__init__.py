"""Authentication and authorization: identifies callers, and decides what their grants allow."""
