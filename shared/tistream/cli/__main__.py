"""`python -m tistream.cli`: the `tistream` command without its script."""

from tistream.cli.main import main

main()
