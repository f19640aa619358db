"""The C++ core, as Python sees it. Offsets, sizes and lengths are bytes; times are seconds."""

from collections.abc import Sequence
from typing import Any, TypedDict

from typing_extensions import Buffer

class Capability(TypedDict):
    ok: bool
    reason: str

def page_size() -> int:
    """Bytes of a memory page of this host."""

def capabilities() -> dict[str, Capability]:
    """What this process may use, found by really using it.

    Keys: ``io_uring``, ``cachestat``, ``statx_dioalign``, ``madv_populate_write``,
    ``transparent_huge_pages``, ``registered_buffers``.
    """

class Residency(TypedDict):
    bytes: int
    provable: bool
    method: str  # "cachestat", "mincore", "tmpfs" or "none"
    reason: str

def residency(path: str, offset: int = 0, length: int = 0) -> Residency:
    """Bytes of a file range that are in the page cache (length 0: to the end).

    ``provable`` is false, and ``bytes`` 0, where the kernel gives no answer to believe.
    """

class FileInfo:
    path: str
    size_bytes: int
    device: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    opened_ns: int  # wall-clock time just before it was opened
    file_system: str  # "ext4", "xfs", "tmpfs", "overlay", "fuse", "nfs", … or the hex magic
    direct: bool  # O_DIRECT was probed with a real read and works
    direct_reason: str  # why not, "" if direct
    memory_align: int  # bytes; what O_DIRECT asks of buffers
    offset_align: int  # bytes; what O_DIRECT asks of offsets and lengths
    align_source: str  # "statx" or "assumed"

class Tuning(TypedDict):
    request_bytes: int
    depth: int
    reason: str

class FileSet:
    """Open files of one checkpoint: opened, probed and their first bytes read in parallel.

    Raises the error of the first path (in order) that cannot be opened or read.
    Closing is idempotent; a Load or Transfer keeps what it needs open.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        direct: bool = True,
        head_bytes: int = 65536,
        whole_header: bool = False,
        threads: int = 32,
        timeout_s: float = 120.0,
    ) -> None: ...
    @property
    def infos(self) -> list[FileInfo]: ...
    def release_heads(self) -> None:
        """Free the first bytes of all files."""
    def head(self, file: int, length: int = ...) -> bytes:
        """The first min(head_bytes, size) bytes; with ``whole_header`` at least a safetensors
        header, if the file has a credible one."""
    def read(self, file: int, offset: int, length: int, timeout_s: float = 120.0) -> bytes:
        """Exactly these bytes. Raises TruncatedError, StorageError, DeadlineError."""
    def tuning(self, file: int) -> Tuning:
        """How reads of this file are shaped, and why."""
    def check_unchanged(self, timeout_s: float = 120.0) -> None:
        """Raises ChangedError if size, mtime or ctime of a file differ from those at opening."""
    def close(self) -> None: ...

class MemoryPool:
    """Touched host memory in windows of one size, recycled between loads.

    ``limit_bytes`` is what it may retain while nobody uses it. Thread-safe.
    """

    def __init__(self, *, window_bytes: int = 16 << 20, limit_bytes: int = 0) -> None: ...
    def prefault(self, size_bytes: int, *, threads: int = 0) -> None:
        """Retain size_bytes of memory that is already touched (raises limit_bytes to it)."""
    @property
    def window_bytes(self) -> int: ...
    @property
    def retained_bytes(self) -> int: ...
    @property
    def live_bytes(self) -> int:
        """Handed out and not yet returned."""
    def trim(self) -> None:
        """Give all retained memory back to the host."""

class Lease:
    """A byte range of a Load's destination; exports a writable buffer and keeps it alive."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Load:
    """Reads extents of a FileSet into destination memory, in order of destination.

    ``extents`` is a C-contiguous buffer of uint64, four to an extent:
    file index, file offset, length, destination offset; ascending and disjoint in destination.
    Where the file is read directly, destination and file offset are equal modulo offset_align.
    Destination space is ``space_bytes`` of address space in windows of the pool's size; a window
    gets memory when its first read is due and gives it back when its last Lease is gone and
    ``release_before`` has passed it.
    """

    def __init__(
        self,
        files: FileSet,
        extents: Buffer,
        space_bytes: int,
        *,
        pool: MemoryPool,
        budget_bytes: int = 0,  # 0: unlimited
        engine: str = "auto",  # "auto", "io_uring", "pread"
        request_bytes: int = 0,  # 0: chosen
        depth: int = 0,  # requests in flight; 0: chosen
        digest: bool = False,
        use_page_cache: bool = True,  # read what is resident from the page cache
        stall_timeout_s: float = 120.0,  # no byte for this long: DeadlineError
    ) -> None: ...
    def wait_past(self, end: int, timeout_s: float) -> int:
        """Wait until every planned byte below ``end`` has landed, or the timeout; return how far
        all has landed.

        Raises the error that keeps these bytes from landing; DeadlineError when the storage has
        returned nothing for ``stall_timeout_s``. A caller that waits for bytes which the budget
        keeps back makes the budget be exceeded, which is counted.
        """
    def lease(self, offset: int, length: int) -> Lease: ...
    def release_before(self, offset: int) -> None:
        """Windows that end at or below ``offset`` are from now on kept by their leases alone."""
    def read_bytes(self, offset: int, length: int) -> bytes:
        """A copy of landed destination bytes."""
    def digests(self) -> list[str]:
        """Digest of each file (``digest=True``, whole files planned, all landed)."""
    def stats(self) -> dict[str, Any]:
        """engine, engine_reason, tuning_reason, request_bytes, depth, planned_bytes, landed_bytes,
        direct_bytes, cached_bytes, buffered_bytes, requests, over_budget_bytes, peak_bytes,
        small_pages, first_byte_s, elapsed_s, quarantined_bytes."""
    def close(self, timeout_s: float = 5.0) -> int:
        """Stop; wait for what is in flight; return the bytes left quarantined (0 normally)."""

class Transfer:
    """Streams every byte of a FileSet through a bounded ring: digests it, or copies it, or both.

    Starts at construction, in its own threads. ``sinks`` are paths of new files, one for each
    file of the set; they are preallocated, written (directly where possible) and fdatasync'ed.
    """

    def __init__(
        self,
        files: FileSet,
        *,
        sinks: Sequence[str] | None = None,
        digest: bool = True,
        ring_bytes: int = 0,
        engine: str = "auto",
        request_bytes: int = 0,
        depth: int = 0,
        use_page_cache: bool = True,
        limit_bytes_per_s: int = 0,
        stall_timeout_s: float = 120.0,
    ) -> None: ...
    def wait(self, timeout_s: float) -> bool:
        """True when all is done; False at the timeout. Raises the first error."""
    def digests(self) -> list[str]: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self, timeout_s: float = 5.0) -> int: ...
    def __enter__(self) -> Transfer: ...
    def __exit__(self, *error: object) -> None:
        """Closes; after an error without waiting for what the storage still holds."""

def digest_bytes(data: Buffer) -> str:
    """The digest that a file with this content has."""

def quarantined_threads() -> int:
    """Threads that a system call still holds after their owner's deadline."""

def copy_bandwidth(
    size_bytes: int, *, threads: int = 0, fresh: bool = True, huge_pages: bool = True
) -> float:
    """Bytes a second of a parallel memory copy (into fresh or touched memory)."""

class CopyRate(TypedDict):
    bytes: int
    seconds: float

class Device:
    """One accelerator. Thread-safe; leaves the calling thread's current device as it was."""

    platform: str  # "host", "rocm", "cuda" or "ascend"
    index: int
    name: str  # "" where the runtime does not tell
    pci_bus: str  # "0000:c1:00.0", or ""
    numa_node: int  # -1: unknown
    tensor_align: int  # bytes; where kernels want a tensor to start
    copy_align: int  # bytes; where both ends of a copy have to start
    def memory(self) -> tuple[int, int]:
        """Free and total bytes of device memory."""
    def allocate(self, size_bytes: int) -> DeviceBuffer:
        """Memory of the runtime's own, outside torch. Raises OutOfMemoryError, DeviceError."""

class DeviceBuffer:
    """Device memory that is freed with this object."""

    address: int
    def __len__(self) -> int: ...
    def to_bytes(self, offset: int = 0, length: int | None = None) -> bytes:
        """Copy it back to the host."""

class Platform:
    """A device runtime in this process."""

    name: str
    library: str  # path of the shared library, "" for the host
    found_by: str  # "already loaded", "torch's folder", "toolkit", "system", "" for the host
    version: str  # "" where the runtime does not tell
    device_count: int
    def open(self, index: int) -> Device:
        """Raises UsageError for an index that does not exist, DeviceError."""

def platform_names() -> list[str]:
    """The platforms of this build, in the order in which they are tried."""

def find_platform(name: str, folders: Sequence[str] = ()) -> Platform:
    """The runtime of a platform: already loaded, else in `folders`, the toolkit, the system.

    Raises UnsupportedError, with all that was tried, where there is none or it has no device.
    """

class PinnedRing:
    """Host memory that a device copies from: slots of one size, on the device's NUMA node,
    touched, and registered with the runtime where it agrees. It opens by and by, as a load needs
    it, up to its size.

    Raises OutOfMemoryError, DeviceError.
    """

    def __init__(
        self,
        device: Device,
        size_bytes: int,
        *,
        slot_bytes: int = 8 << 20,
        probe_path: str | None = None,
    ) -> None:
        """``probe_path``: a file to read from with O_DIRECT, to prove that it works."""
    size_bytes: int
    slot_bytes: int
    pinned: bool
    method: str  # "registered", "runtime" (its own allocation) or "none"
    reason: str  # why it is not registered, "" if it is
    numa_node: int  # where it lies, -1: unknown
    takes_direct_reads: bool | None  # None: not probed
    def copy_rate(self, seconds: float = 0.2) -> CopyRate:
        """Measure copies to the device through two streams."""
    def close(self) -> None: ...

class DeviceLoad:
    """A load whose destination is device memory that Python places, window by window.

    Reads run ahead into the ring from the start; a chunk is copied once every window that it
    touches is placed. Offsets are those of the plan's destination space. The extents' ranges,
    rounded to ``block_bytes``, must not overlap.
    """

    def __init__(
        self,
        files: FileSet,
        extents: Buffer,
        space_bytes: int,
        *,
        device: Device,
        ring: PinnedRing,
        block_bytes: int = 512,
        engine: str = "auto",
        depth: int = 0,
        digest: bool = False,
        use_page_cache: bool = True,
        stall_timeout_s: float = 120.0,
    ) -> None: ...
    @property
    def streams(self) -> list[int]:
        """The runtime's handles of the streams that copy: order torch's own stream with them."""
    def place(
        self,
        begin: int,
        end: int,
        address: int,
        owner: object,
        next_begin: int | None,
        *,
        after: int | None = None,
    ) -> None:
        """The window [begin, end), whole blocks, lies at ``address``. Windows come in order and may
        share one block. The next one begins at ``next_begin`` (a load without windows places an
        empty one); None says that this was the last. The core keeps ``owner`` alive until the last
        copy into the window has run. Copies into it wait for what the runtime's stream ``after``
        holds."""
    def wait_past(self, end: int, timeout_s: float) -> int:
        """As Load.wait_past, of bytes that have arrived on the device. Raises also DeviceError."""
    def move(self, moves: Buffer, owner: object, *, after: int | None = None) -> int:
        """Queue copies within the device, triples of uint64 (to, from, length), of bytes that
        have landed; returns a ticket. ``owner`` keeps both ends alive until they have run;
        ``after`` as in place()."""
    def wait_moved(self, ticket: int, timeout_s: float) -> bool:
        """Whether these moves have run."""
    def digests(self) -> list[str]: ...
    def stats(self) -> dict[str, Any]:
        """As Load's, and: copied_bytes, copies, moved_bytes, moves, read_s (with a read in
        flight), copy_s (with a copy in flight), overlap_s (with both), ring_bytes, pinned,
        waits_for_window_s, waits_for_slot_s, ring_open_bytes (as far as the ring was needed)."""
    def close(self, timeout_s: float = 5.0) -> int:
        """Stop. Returns bytes of the ring and the windows that are quarantined, since a read or
        a copy may still touch them."""
