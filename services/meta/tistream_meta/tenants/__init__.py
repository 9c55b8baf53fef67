"""The life of a tenant: its registration and rules, its start, its tokens, and its deletion."""
