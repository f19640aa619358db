"""A device runtime's own functions through ctypes: the same words for HIP, CUDA and ACL.

What may fail answers the runtime's status; what makes something asserts that it did.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.simulator_controls import Controls

H2D, D2H, D2D = 1, 2, 3

# ACL's status where HIP and CUDA have this one.
_ACL_STATUS = {1: 107000, 2: 207001, 3: 100001, 101: 107001, 400: 107003, 713: 107000}
_NOT_READY = 600


def address_of(memory: mmap.mmap) -> int:
    """Where a mapping lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class RawRuntime:
    """The functions of the stand-in that `runtime` controls; `kind` is "hip", "cuda" or "acl"."""

    def __init__(self, runtime: Controls, kind: str) -> None:
        self._library = runtime.library
        self._kind = kind
        self._mapped: list[mmap.mmap] = []
        if kind == "acl":
            assert self._library.aclInit(None) in (0, 100002)

    def status(self, number: int) -> int:
        """What the runtime calls HIP's status of that number."""
        return _ACL_STATUS[number] if self._kind == "acl" else number

    def select(self, device: int) -> int:
        return self._call("SetDevice", device)

    def count(self) -> tuple[int, int]:
        """The status, and how many devices there are."""
        found = ctypes.c_int()
        return self._call("GetDeviceCount", ctypes.byref(found)), found.value

    def try_allocate(self, size: int) -> tuple[int, int]:
        """The status, and the address of device memory."""
        made = ctypes.c_void_p()
        policy = (0,) if self._kind == "acl" else ()
        status = self._call("Malloc", ctypes.byref(made), ctypes.c_size_t(size), *policy)
        return status, made.value or 0

    def allocate(self, size: int) -> int:
        status, address = self.try_allocate(size)
        assert status == 0
        return address

    def free(self, address: int) -> int:
        return self._call("Free", ctypes.c_void_p(address))

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if self._kind == "acl":
            status = self._call("GetMemInfo", 1, ctypes.byref(free), ctypes.byref(total))
        else:
            status = self._call("MemGetInfo", ctypes.byref(free), ctypes.byref(total))
        assert status == 0
        return free.value, total.value

    def mapped(self, size: int) -> mmap.mmap:
        """Memory of the process's own; it stays mapped with this object."""
        self._mapped.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return self._mapped[-1]

    def pinned(self, size: int) -> mmap.mmap:
        """Registered memory."""
        memory = self.mapped(size)
        assert self.register(address_of(memory), size) == 0
        return memory

    def register(self, address: int, size: int) -> int:
        name = "HostRegisterV2" if self._kind == "acl" else "HostRegister"
        return self._call(name, ctypes.c_void_p(address), ctypes.c_size_t(size), 0)

    def unregister(self, address: int) -> int:
        return self._call("HostUnregister", ctypes.c_void_p(address))

    def allocate_host(self, size: int) -> int:
        made = ctypes.c_void_p()
        name = {"hip": "HostMalloc", "cuda": "HostAlloc", "acl": "MallocHost"}[self._kind]
        flags = () if self._kind == "acl" else (0,)
        assert self._call(name, ctypes.byref(made), ctypes.c_size_t(size), *flags) == 0
        return made.value or 0

    def free_host(self, address: int) -> int:
        name = "HostFree" if self._kind == "hip" else "FreeHost"
        return self._call(name, ctypes.c_void_p(address))

    def stream(self) -> int:
        made = ctypes.c_void_p()
        if self._kind == "acl":
            status = self._call("CreateStreamWithConfig", ctypes.byref(made), 0, 0)
        else:
            status = self._call("StreamCreateWithFlags", ctypes.byref(made), 1)
        assert status == 0
        return made.value or 0

    def stop_on_failure(self, stream: int) -> int:
        """What streams of HIP and CUDA do anyway."""
        if self._kind != "acl":
            return 0
        return self._call("SetStreamFailureMode", ctypes.c_void_p(stream), ctypes.c_uint64(1))

    def destroy_stream(self, stream: int) -> int:
        name = "DestroyStream" if self._kind == "acl" else "StreamDestroy"
        return self._call(name, ctypes.c_void_p(stream))

    def synchronize(self, stream: int) -> int:
        name = "SynchronizeStream" if self._kind == "acl" else "StreamSynchronize"
        return self._call(name, ctypes.c_void_p(stream))

    def idle(self, stream: int) -> bool:
        if self._kind != "acl":
            return self._ready(self._call("StreamQuery", ctypes.c_void_p(stream)))
        state = ctypes.c_int()
        assert self._call("StreamQuery", ctypes.c_void_p(stream), ctypes.byref(state)) == 0
        return state.value == 0

    def wait(self, stream: int, event: int) -> int:
        flags = () if self._kind == "acl" else (0,)
        return self._call(
            "StreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), *flags
        )

    def event(self, *, timed: bool = True) -> int:
        made = ctypes.c_void_p()
        if self._kind == "acl":
            status = self._call("CreateEventExWithFlag", ctypes.byref(made), 8 if timed else 1)
        else:
            status = self._call("EventCreateWithFlags", ctypes.byref(made), 0 if timed else 2)
        assert status == 0
        return made.value or 0

    def destroy_event(self, event: int) -> int:
        name = "DestroyEvent" if self._kind == "acl" else "EventDestroy"
        return self._call(name, ctypes.c_void_p(event))

    def record(self, event: int, stream: int) -> int:
        name = "RecordEvent" if self._kind == "acl" else "EventRecord"
        return self._call(name, ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def query(self, event: int) -> tuple[int, bool]:
        """The status, and whether the event is done."""
        if self._kind != "acl":
            status = self._call("EventQuery", ctypes.c_void_p(event))
            return (0 if status == _NOT_READY else status), status == 0
        state = ctypes.c_int()
        status = self._call("QueryEventStatus", ctypes.c_void_p(event), ctypes.byref(state))
        return status, state.value == 1

    def done(self, event: int) -> bool:
        status, done = self.query(event)
        assert status == 0
        return done

    def wait_for(self, event: int) -> int:
        name = "SynchronizeEvent" if self._kind == "acl" else "EventSynchronize"
        return self._call(name, ctypes.c_void_p(event))

    def try_elapsed(self, begin: int, end: int) -> tuple[int, float]:
        """The status, and seconds."""
        passed = ctypes.c_float()
        events = (ctypes.c_void_p(begin), ctypes.c_void_p(end))
        status = self._call("EventElapsedTime", ctypes.byref(passed), *events)
        return status, passed.value / 1e3

    def elapsed_s(self, begin: int, end: int) -> float:
        status, seconds = self.try_elapsed(begin, end)
        assert status == 0
        return seconds

    def copy(
        self, to: int | mmap.mmap, source: int | mmap.mmap, size: int, kind: int, stream: int
    ) -> int:
        """Ask for an asynchronous copy; a mapping stands for where it starts."""
        ends = [
            ctypes.c_void_p(address_of(each) if isinstance(each, mmap.mmap) else each)
            for each in (to, source)
        ]
        room = (ctypes.c_size_t(size),)
        return self._call(
            "MemcpyAsync",
            *(ends[0], *(room if self._kind == "acl" else ()), ends[1], *room),
            *(kind, ctypes.c_void_p(stream)),
        )

    def copy_batch(self, pieces: list[tuple[int, int, int]], stream: int) -> tuple[int, int]:
        """Ask for copies, triples of (to, from, size); the status, and the first that failed."""
        count = len(pieces)
        to, source = ((ctypes.c_void_p * count)(*(each[i] for each in pieces)) for i in (0, 1))
        sizes = (ctypes.c_size_t * count)(*(each[2] for each in pieces))
        rooms = (sizes,) if self._kind == "acl" else ()
        attributes, first, failed = (ctypes.c_char * 64)(), ctypes.c_size_t(), ctypes.c_size_t()
        status = self._call(
            "MemcpyBatchAsync",
            *(to, *rooms, source, sizes, ctypes.c_size_t(count)),
            *(attributes, ctypes.byref(first), ctypes.c_size_t(1), ctypes.byref(failed)),
            ctypes.c_void_p(stream),
        )
        return status, failed.value

    def _call(self, name: str, *arguments: Any) -> int:
        prefix = "aclrt" if self._kind == "acl" else self._kind
        status: int = getattr(self._library, prefix + name)(*arguments)
        return status

    @staticmethod
    def _ready(status: int) -> bool:
        assert status in (0, _NOT_READY)
        return status == 0
