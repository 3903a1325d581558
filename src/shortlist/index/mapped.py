"""Columns mapped from files, which stay readable when another program truncates a file.

The kernel ends a process that reads a mapped page beyond the end of its file (SIGBUS). On Linux a read lease prevents
that: a program that truncates the file, or opens it for writing, waits until the lease is released, at most
`/proc/sys/fs/lease-break-time` seconds (45). A thread looks at the leases. When one is wanted back, it replaces every
mapping by a copy in memory, at the same address, so that the arrays over it stay as they are. Then it releases all.

Where no lease is granted (other systems, network file systems, the files of another user), a file is mapped without.
"""

import ctypes
import logging
import mmap
import os
import signal
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5


class MappedFolder:
    """Maps the columns of one folder. They may be written to, which changes this process alone.

    Leases are watched from the end of the block on, as long as columns are used.
    """

    def __init__(self) -> None:
        self._leased: list[_Leased] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._leased:
            threading.Thread(target=_watch, args=(self._leased,), name="index-leases", daemon=True).start()

    def array(self, path: Path) -> NDArray[Any]:
        """Map the array of an `.npy` file."""
        with path.open("rb") as file:
            npy.read_magic(file)
            shape, fortran, dtype = npy.read_array_header_1_0(file)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            found = np.ndarray(shape, dtype, mapping, file.tell(), order="F" if fortran else "C")
        if (descriptor := _lease(path)) is not None:
            self._leased.append(_Leased(path, descriptor, weakref.ref(mapping)))
        return found


@dataclass(frozen=True, slots=True)
class _Leased:
    """A mapped file, and the descriptor that holds its lease."""

    path: Path
    descriptor: int
    mapping: "weakref.ref[mmap.mmap]"


def _watch(leased: list[_Leased]) -> None:
    """Look at the leases until no array uses a file any more, or until one is wanted back."""
    while leased:
        time.sleep(LOOK_EVERY_SECONDS)
        for file in [each for each in leased if each.mapping() is None]:
            _release(file.descriptor)
            leased.remove(file)
        if wanted := next((each for each in leased if _is_wanted_back(each.descriptor)), None):
            size = sum(map(_copied, leased))
            while leased:
                _release(leased.pop().descriptor)
            logger.warning(
                "Another program is changing %s. The index was copied into memory (%d MB), and search goes on. "
                "Let only the gateway write to this folder, and restart the gateway to build the index again.",
                wanted.path,
                size // 1_000_000,
            )


def _copied(file: _Leased) -> int:
    """Replace the mapping of a file by a copy in memory, at once for all threads; return how large it is."""
    mapping = file.mapping()  # referred to until the end, so that its address is not used for anything else
    if mapping is None:
        return 0
    try:
        if os.fstat(file.descriptor).st_size < len(mapping):
            raise OSError("it is truncated already")
        with mmap.mmap(-1, len(mapping), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as copy:
            np.copyto(np.frombuffer(copy, np.uint8), np.frombuffer(mapping, np.uint8))  # without the GIL
            _move_pages(copy, mapping)
    except OSError as error:
        logger.error("Another program is changing %s, and it cannot be copied into memory: %s", file.path, error)
        return 0
    return len(mapping)


if sys.platform == "linux":
    import fcntl

    _MAYMOVE, _FIXED, _DONTUNMAP = 1, 2, 4  # of <sys/mman.h>

    def _lease(path: Path) -> int | None:
        """Take a read lease on a file, and return the descriptor that holds it."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # ignored; the default, SIGIO, ends the process
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def _is_wanted_back(descriptor: int) -> bool:
        return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_RDLCK

    def _release(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)  # closing is not enough where a child has a copy
        os.close(descriptor)

    def _move_pages(source: mmap.mmap, target: mmap.mmap) -> None:
        """Put the pages of one mapping in the place of those of another; the source stays, empty."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mremap.restype = ctypes.c_void_p
        size, (start, place) = ctypes.c_size_t(len(target)), map(_address, (source, target))
        if libc.mremap(start, size, size, _MAYMOVE | _FIXED | _DONTUNMAP, place) != place.value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _address(mapping: mmap.mmap) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapping)))

else:

    def _lease(_: Path) -> int | None:
        return None
