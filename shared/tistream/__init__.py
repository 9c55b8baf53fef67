"""TiStream: a change-data platform for TiDB. The library that every service shares."""

__version__ = "0.1.0"
