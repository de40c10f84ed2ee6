"""Rows kept whole, as caches of a RocksDB of their own."""
