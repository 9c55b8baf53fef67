"""A feed's sink URI and configuration: TiCDC's keys, checked and typed, and the plan of what a feed would do. Pure."""
