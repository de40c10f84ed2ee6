"""Tables of numbers per key, as caches of RocksDB."""
