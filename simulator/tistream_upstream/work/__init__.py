"""Transactions, DDL jobs, region changes and failures, and the truth about the resulting changes."""
