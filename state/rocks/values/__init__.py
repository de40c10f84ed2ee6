"""State of the row face: values, lists, maps, and what expires, as caches of RocksDB."""
