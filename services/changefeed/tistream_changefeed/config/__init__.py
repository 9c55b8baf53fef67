"""A feed's sink URI and configuration, with TiCDC's keys, checked and typed; and the plan of a feed: the tables and
topics that it would have. Pure."""
