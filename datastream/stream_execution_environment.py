"""The names of `pyflink.datastream.stream_execution_environment`."""

from ..api.streams.data_stream import StreamExecutionEnvironment as StreamExecutionEnvironment
