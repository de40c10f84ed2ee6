"""The names of `pyflink.datastream.async_data_stream`."""

from ..api.streams.async_data_stream import AsyncDataStream as AsyncDataStream
