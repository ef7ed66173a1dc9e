"""The memory of this process: how much it had at most, and large tensors that go back when they are freed.

The second is for Linux with glibc.

By default glibc cuts tensors from its heap once some were freed, and tensors that are kept for the backward pass leave
holes between them: a LoRA training of SmolLM2-135M held 5.3 GiB where 2.5 GiB were in use.
"""

import ctypes
import re
import resource
import sys
from pathlib import Path

_M_MMAP_THRESHOLD = -3  # of malloc.h: from which size on memory is mapped on its own
_LEAST_BYTES = 2**16  # below it a system call costs more than it saves


def return_freed_tensors() -> bool:
    """Set it for this process.

    Returns:
        Whether it could be set: not on macOS, nor with another C library.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _LEAST_BYTES) == 1


def measure_peak_memory() -> int:
    """Measures the largest resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # On Linux `ru_maxrss` begins with the memory of the process that started this one.
        match = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if match:
            return int(match[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
