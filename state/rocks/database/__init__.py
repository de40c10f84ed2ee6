"""One RocksDB per operator and task: its files and views, how keys and entries are told there."""
