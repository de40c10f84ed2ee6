"""Buffers that one task hands to another on its machine without the kernel's copies.

The sender has a piece of memory, in slots, whose descriptor goes over their unix socket, once both
have proved that they belong to the job. When the receiver can read it and has said so, a buffer is
copied into a slot that is free, and the number of the slot travels in the frame instead of it. The
receiver's arrays point into the slot, and when the last of them is gone it says so:

    MEMORY frame, and its answer    then    free  --take-->  lent  --FREE frame-->  free

What finds no free slot, and what is small, goes through the socket as ever: nobody waits for a
slot, so a receiver may keep what it got for as long as it likes. Whose slot is free the sender
alone knows. The memory has no name and its size is sealed: it is gone with the last of the two
processes, however they end, and neither can take it away from the other.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...core.errors import TransportError

LEAST: Final = 32 << 10
"""Bytes of a buffer from which on a slot is cheaper than the socket."""

MOST_SLOTS: Final = 16
"""Of a connection."""

_PAGE: Final = mmap.PAGESIZE
_SEALS: Final = 0 if not hasattr(fcntl, "F_SEAL_GROW") else fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK

MEMORY: Final = struct.Struct("<IIQ")
"""What is said of the memory: how many slots, nothing, bytes of each."""

PLACE: Final = struct.Struct("<IIQ")
"""Instead of a buffer: its slot, nothing, its bytes."""

_SLOT: Final = struct.Struct("<Q")


class OwnSlots:
    """The sender's side. Each slot is either in `_free`, or lent."""

    def __init__(self, slots: int, slot_bytes: int) -> None:
        """OSError if there is no such memory here."""
        self.slots = slots
        self.slot_bytes = -(-slot_bytes // _PAGE) * _PAGE
        size = slots * self.slot_bytes
        self.descriptor = os.memfd_create("strom-exchange", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = memoryview(mmap.mmap(self.descriptor, size))
        except OSError:
            os.close(self.descriptor)
            raise
        self._free = list(range(slots - 1, -1, -1))
        """The last one is taken first: its pages are there already."""
        self._lent = [False] * slots
        self._accepted = False
        """Whether the receiver can read them."""

    @property
    def told(self) -> bytes:
        """The MEMORY frame's payload."""
        return MEMORY.pack(self.slots, 0, self.slot_bytes)

    def handed_over(self) -> None:
        """The receiver has the descriptor."""
        os.close(self.descriptor)

    def accept(self) -> None:
        """The receiver says that it can read them. TransportError if it says so again."""
        if self._accepted:
            raise TransportError("it accepts shared memory again")
        self._accepted = True

    def take(self, parts: Sequence[Any], size: int) -> bytes | None:
        """Copy the parts, of so many bytes, into a slot, and say where; None: there is no room."""
        if not self._accepted or not LEAST <= size <= self.slot_bytes or not self._free:
            return None
        slot = self._free.pop()
        self._lent[slot] = True
        at = slot * self.slot_bytes
        for part in parts:
            piece = memoryview(part).cast("B")
            self._memory[at : at + piece.nbytes] = piece
            at += piece.nbytes
        return PLACE.pack(slot, 0, size)

    def give_back(self, payload: Any) -> None:
        """What a FREE frame says. TransportError if the receiver has no such slot."""
        for (slot,) in _SLOT.iter_unpack(bytes(payload)):
            if slot >= self.slots or not self._lent[slot]:
                raise TransportError(f"it gave back slot {slot} of shared memory, which it has not")
            self._lent[slot] = False
            self._free.append(slot)


class LentSlots:
    """The receiver's side: may only read. Buffers may outlive the connection, and end on any
    thread."""

    def __init__(self, payload: Any, descriptor: int) -> None:
        """What a MEMORY frame says. The descriptor is closed. TransportError if this is nothing
        that a sender of strom's has made, OSError if it cannot be read."""
        try:
            self._slots, _, self._slot_bytes = MEMORY.unpack(bytes(payload))
            size = self._slots * self._slot_bytes
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            if not size or os.fstat(descriptor).st_size != size or seals & _SEALS != _SEALS:
                raise TransportError("it shares memory of another size than it says, or unsealed")
            memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        except struct.error as error:
            raise TransportError(f"it shares memory and does not say which: {error}") from error
        finally:
            os.close(descriptor)
        self._memory = np.frombuffer(memory, dtype=np.uint8)
        self._address = self._memory.ctypes.data
        self._lent: set[int] = set()
        self._gone: deque[int] = deque()
        """Slots that nobody here uses any more, and the sender does not know of."""

    def lend(self, payload: Any) -> pa.Buffer:
        """What lies at the place that a frame says, until the last that points there is gone.
        TransportError if there is no such place."""
        data = bytes(payload)
        slot, _, size = PLACE.unpack(data) if len(data) == PLACE.size else (self._slots, 0, 0)
        if slot >= self._slots or slot in self._lent or size % 8 or size > self._slot_bytes:
            raise TransportError(f"it says that {size} bytes are in slot {slot} of shared memory")
        self._lent.add(slot)
        address = self._address + slot * self._slot_bytes
        return pa.foreign_buffer(address, size, _Lent(self, slot))

    def gone(self, slot: int) -> None:
        """On any thread."""
        self._gone.append(slot)

    def freed(self) -> bytes:
        """A FREE frame's payload, for all slots that are free since the last call; may be empty."""
        if not self._gone:  # asked at every turn
            return b""
        found = bytearray()
        while self._gone:
            slot = self._gone.popleft()
            self._lent.discard(slot)
            found += _SLOT.pack(slot)
        return bytes(found)


class _Lent:
    """What a buffer in a slot holds; when it ends, so has the buffer."""

    __slots__ = ("_slot", "_slots")

    def __init__(self, slots: LentSlots, slot: int) -> None:
        self._slots, self._slot = slots, slot

    def __del__(self) -> None:
        self._slots.gone(self._slot)
