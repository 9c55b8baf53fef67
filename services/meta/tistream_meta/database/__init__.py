"""The meta database: tables, rows, transactions."""
