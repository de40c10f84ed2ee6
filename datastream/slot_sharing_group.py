"""The names of `pyflink.datastream.slot_sharing_group`."""

from ..api.configuration.memory import MemorySize as MemorySize
from ..api.configuration.slots import SlotSharingGroup as SlotSharingGroup
