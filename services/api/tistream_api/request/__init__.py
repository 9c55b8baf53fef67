"""What a request says: path, parameters, body. No decision about who may ask."""
