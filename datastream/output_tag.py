"""The names of `pyflink.datastream.output_tag`."""

from ..api.functions.user_functions import OutputTag as OutputTag
