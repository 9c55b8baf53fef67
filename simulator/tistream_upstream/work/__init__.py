"""Transactions and DDL jobs, region changes and failures, and the truth about them."""
