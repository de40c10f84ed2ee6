"""How RocksDB is set up for the state of streams.

Bloom filters of 10 bits, LZ4, no log of writes; index and filters in the block cache (so they
count towards the budget), in partitions of 4 KB, and no filters for the last level. Whole filters
are megabytes a file: where they do not fit into the block cache together, each read of a row reads
some. That cost 40 us a row, and 17 us with those of the last level alone, where 4 to 6 us are left.

Files are merged by size (universal compaction) and not by levels, which write nearly all files anew
every few checkpoints where changes are spread over all keys, and checkpoints have to upload what is
new: with 1 % of 10 M keys changed between two of them 25 MB each, and 14 MB so. A database may
take twice its size on the disk while all of it is merged.
"""

from __future__ import annotations

from typing import Any, Final

from .budget import StateBudget

_MOST_OLDER: Final = 100
"""In percent of the oldest run of files: once all others together are so large, all are merged."""

_MOST_FILES: Final = 8
"""So many runs are merged: each is looked into for a key that no filter excludes."""


def options_of(budget: StateBudget) -> Any:
    """Of a database, or of one of its files, within the budget."""
    from rocksdict import (
        BlockBasedIndexType,
        BlockBasedOptions,
        DBCompactionStyle,
        DBCompressionType,
        Options,
        UniversalCompactOptions,
    )

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
    merging = UniversalCompactOptions()
    merging.max_size_amplification_percent = _MOST_OLDER
    merging.size_ratio = 10
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(merging)
    options.set_level_zero_file_num_compaction_trigger(_MOST_FILES)
    options.set_max_background_jobs(2)
    options.set_max_open_files(512)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    return options
