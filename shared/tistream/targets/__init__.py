"""The destinations of a restore: MySQL servers, SQL files and Parquet files."""
