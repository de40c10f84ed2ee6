"""The names of `pyflink.common.watermark_strategy`."""

from ..api.watermarks import (
    TimestampAssigner as TimestampAssigner,
    WatermarkStrategy as WatermarkStrategy,
)
