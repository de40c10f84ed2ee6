"""How RocksDB is set up for the state of streams.

Bloom filters of 10 bits, LZ4, no log of writes; index and filters in the block cache (so they
count towards the budget), in partitions of 4 KB, and no filters for the last level. Whole filters
are megabytes a file: where they do not fit into the block cache together, each read of a row reads
some. That cost 40 us a row, and 17 us with those of the last level alone, where 4 to 6 us are left.
"""

from __future__ import annotations

from typing import Any

from .budget import StateBudget


def options_of(budget: StateBudget) -> Any:
    """Of a database, or of one of its files, within the budget."""
    from rocksdict import BlockBasedIndexType, BlockBasedOptions, DBCompressionType, Options

    cache, buffers = budget.shared()
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(10, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    blocks.set_pin_top_level_index_and_filter(True)
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_optimize_filters_for_hits(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_manager(buffers)
    options.set_write_buffer_size(max(min(budget.write_buffers // 2, 64 << 20), 64 << 10))
    options.set_max_background_jobs(2)
    options.set_max_open_files(512)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    return options
