"""`SlotSharingGroup`: which operators share slots, and what a slot of theirs takes of a machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ...core.config import SlotResources
from ...core.errors import ConfigurationError
from .memory import MemorySize


@dataclass(frozen=True)
class SlotSharingGroup:
    """A group's name, and the resources of each of its slots on Ray; None: the default, a number of
    CPUs (`JobConfig.slot_cpus`) and no memory set aside. Make one with `builder(name)`.

    The three kinds of memory are one here: their sum is asked of Ray as `memory`. External
    resources are asked under their names; a GPU is `GPU`.
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(
                f"a slot sharing group must have a name, is called {self.name!r}"
            )
        self.resources()

    @staticmethod
    def builder(name: str) -> Builder:
        return Builder(SlotSharingGroup(name))

    def get_name(self) -> str:
        return self.name

    def get_cpu_cores(self) -> float | None:
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        return dict(self.external_resources)

    def resources(self) -> SlotResources:
        """What a slot of the group takes: plain data for the job. ConfigurationError if some is no
        amount."""
        memories = (self.task_heap_memory, self.task_off_heap_memory, self.managed_memory)
        memory = sum(size.get_bytes() for size in memories if size is not None)
        return SlotResources(self.cpu_cores, memory, dict(self.external_resources))


class Builder:
    """Each setter changes the builder, and gives it back; `build()` the group as it is by then."""

    def __init__(self, group: SlotSharingGroup) -> None:
        self._group = group

    def set_cpu_cores(self, cpu_cores: float) -> Builder:
        return self._with(cpu_cores=cpu_cores)

    def set_task_heap_memory(self, task_heap_memory: MemorySize) -> Builder:
        return self._with(task_heap_memory=task_heap_memory)

    def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> Builder:
        return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

    def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> Builder:
        return self._with(task_off_heap_memory=task_off_heap_memory)

    def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> Builder:
        return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

    def set_managed_memory(self, managed_memory: MemorySize) -> Builder:
        return self._with(managed_memory=managed_memory)

    def set_managed_memory_mb(self, managed_memory_mb: int) -> Builder:
        return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

    def set_external_resource(self, name: str, value: float) -> Builder:
        """Replaces an amount given before."""
        return self._with(external_resources={**self._group.external_resources, name: value})

    def build(self) -> SlotSharingGroup:
        return self._group

    def _with(self, **changes: Any) -> Builder:
        self._group = replace(self._group, **changes)
        return self
