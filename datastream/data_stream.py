"""The names of `pyflink.datastream.data_stream`."""

from ..api.jobs.collected import CloseableIterator as CloseableIterator
from ..api.streams.connected import (
    BroadcastConnectedStream as BroadcastConnectedStream,
    BroadcastStream as BroadcastStream,
    ConnectedStreams as ConnectedStreams,
)
from ..api.streams.data_stream import (
    AllWindowedStream as AllWindowedStream,
    CachedDataStream as CachedDataStream,
    DataStream as DataStream,
    KeyedStream as KeyedStream,
    WindowedStream as WindowedStream,
)
from ..api.streams.settings import DataStreamSink as DataStreamSink
