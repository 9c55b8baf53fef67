"""The changefeed service: reads the committed rows of tenants from object storage, and writes them into Kafka, files,
databases or Iceberg tables."""
