"""The command `tistream`: what any machine that reaches the API can run. The platform adds its own commands."""
