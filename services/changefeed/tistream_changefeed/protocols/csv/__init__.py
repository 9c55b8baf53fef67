"""Lines of CSV as TiCDC writes them (reference of changefeeds, 8). Pure."""
