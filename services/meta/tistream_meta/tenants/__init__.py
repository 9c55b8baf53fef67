"""The life of a tenant: its rules, its start, its tokens, its end."""
