"""Arrow between Spark and the Ray object store, one block at a time, with nothing left behind.

RayDP's own conversions are made for a data set that lives as long as the program: `from_spark`
keeps the frame persisted and `to_spark` keeps the blocks in its master actor. A stream converts
for ever, so here each block goes its own way:

    to the store    executor caches the Arrow bytes -> its Ray actor returns them as an object
                    -> the cache is released; the object lives as long as its references
    from the store  the executor reads an object of Arrow IPC bytes through Ray's Java client
                    -> the object lives as long as its owner, or that JVM, holds its reference

In both directions the bytes move between the executors and the store, never through the Spark
driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...core.errors import TransportError, TypeMismatchError


def to_object_store(spark: Any, frame: Any) -> Any:
    """Compute a Spark frame of one partition and return the reference of an object holding it as
    bytes of an Arrow IPC stream. The caller's process owns the object. Returns when it exists."""
    import ray
    from pyspark.storagelevel import StorageLevel

    context = spark.sparkContext
    writer = context._jvm.org.apache.spark.sql.raydp.ObjectStoreWriter
    level = context._getJavaStorageLevel(StorageLevel.MEMORY_AND_DISK)
    info = writer.prepareRecoverableRDD(frame._jdf, level)
    try:
        if info.numPartitions() != 1:
            raise TransportError(f"expected one Spark partition, found {info.numPartitions()}")
        executor = _executor(context._jvm, info.locations()[0])
        reference = executor.getRDDPartition.remote(
            info.rddId(), 0, info.schemaJson(), info.driverAgentUrl()
        )
        ray.wait([reference], fetch_local=False)
        return reference
    finally:
        writer.releaseRecoverableRDD(info.rddId())


def from_object_store(spark: Any, schema: pa.Schema, references: Sequence[Any]) -> Any:
    """A Spark frame over objects that hold bytes of Arrow IPC streams, a partition for each.

    The caller keeps the references until the frame has been used."""
    from pyspark.sql import DataFrame
    from ray._private.worker import global_worker

    core = global_worker.core_worker
    context = spark.sparkContext
    jvm = context._jvm
    identities = [reference.binary() for reference in references]
    owners = [core.get_owner_address(reference) for reference in references]
    blocks = jvm.org.apache.spark.rdd.RayDatasetRDD(context._jsc, identities, owners)
    reader = jvm.org.apache.spark.sql.raydp.ObjectStoreReader
    fields = spark_schema(schema).json()
    return DataFrame(reader.RayDatasetToDataFrame(spark._jsparkSession, blocks, fields), spark)


def spark_schema(schema: pa.Schema) -> Any:
    """The Spark type of columns that `storable` has been applied to."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    result = StructType()
    for column in schema:
        kind = from_arrow_type(column.type, prefer_timestamp_ntz=True)
        result.add(column.name, kind, nullable=column.nullable)
    return result


def storable(schema: pa.Schema) -> pa.Schema:
    """`schema` with the types that Spark lacks replaced by the nearest that hold the same
    values."""
    return pa.schema(
        [
            pa.field(column.name, _storable(column.name, column.type), column.nullable)
            for column in schema
        ]
    )


def encode(table: pa.Table) -> bytes:
    """The bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def decode(block: bytes) -> pa.Table:
    """The table of an Arrow IPC stream, without copying its buffers."""
    with pa.ipc.open_stream(pa.py_buffer(block)) as stream:
        return stream.read_all()


_REPLACED = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}


def _storable(name: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _storable(name, kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_storable(name, kind.value_type))
    if types.is_map(kind):
        return pa.map_(_storable(name, kind.key_type), _storable(name, kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(f.name, _storable(name, f.type), f.nullable) for f in kind])
    if types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if any(lacks(kind) for lacks in _LACKING):
        raise TypeMismatchError(
            f"column '{name}' has type {kind}, which Spark's Parquet writer cannot hold; "
            "cast it in the stream before the sink"
        )
    return _REPLACED.get(kind, kind)


_LACKING = (
    *(pa.types.is_uint64, pa.types.is_time, pa.types.is_union, pa.types.is_decimal),
    *(pa.types.is_duration, pa.types.is_interval),
)


def _executor(jvm: Any, executor: str) -> Any:
    """The Ray actor of a Spark executor. A restarted executor has a new id in Spark but keeps
    the actor name of its first life."""
    import ray

    try:
        return ray.get_actor(f"raydp-executor-{executor}")
    except ValueError:
        deploy = jvm.org.apache.spark.deploy.raydp
        master = jvm.io.ray.api.Ray.getActor(deploy.RayAppMaster.ACTOR_NAME()).get()
        former = deploy.RayAppMasterUtils.getRestartedExecutors(master).get(executor)
        if former is None:
            raise TransportError(f"Spark executor {executor} has no Ray actor any more") from None
        return ray.get_actor(f"raydp-executor-{former}")
