"""External systems into which the platform writes rows: servers, SQL files and Parquet files."""
