"""The names of `pyflink.datastream.connectors.number_seq`."""

from ...connectors.datagen import NumberSequenceSource as NumberSequenceSource
