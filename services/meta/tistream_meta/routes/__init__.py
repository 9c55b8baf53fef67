"""The HTTP surface: each route parses, calls, and translates. It decides nothing."""
