"""One module per case: WHAT, and run(bench)."""
