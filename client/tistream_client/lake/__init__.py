"""The rows of a table as of any time, of which most come from an Iceberg table that a changefeed keeps."""
