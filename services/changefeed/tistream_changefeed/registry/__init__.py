"""Schema registries: what gives the schemas of Avro messages their ids."""
