"""Systems outside the platform that rows are written into."""
