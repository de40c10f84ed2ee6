"""The names of `pyflink.datastream.connectors.base`."""

from ...api.connectors.base import Sink as Sink
from ...api.connectors.base import Source as Source
from ...connectors.kafka import DeliveryGuarantee as DeliveryGuarantee
