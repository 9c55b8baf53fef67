"""`python -m tistream_cli`: runs the `tistream` command without the installed script."""

from tistream_cli.main import main

main()
