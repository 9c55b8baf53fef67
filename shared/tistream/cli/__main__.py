"""`python -m tistream.cli`: runs the `tistream` command without the installed script."""

from tistream.cli.main import main

main()
