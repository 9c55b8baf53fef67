"""TiStream, a change-data platform for TiDB: the library that all of its services import."""

__version__ = "0.1.0"
