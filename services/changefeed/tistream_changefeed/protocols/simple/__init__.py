"""TiCDC's simple protocol in its JSON form (reference of changefeeds, 7). Pure."""
