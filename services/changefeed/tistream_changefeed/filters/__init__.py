"""What a feed leaves out: tables, kinds of events, rows by expressions, and columns. Pure."""
