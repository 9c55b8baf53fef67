"""A feed's sink URI and configuration: TiCDC's keys, checked and typed; and the plan of a feed, which states its tables
and topics. Pure."""
