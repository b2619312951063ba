"""Reports: the schema, how rows become results, and one module per output format."""
