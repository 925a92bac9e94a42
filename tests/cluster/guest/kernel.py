"""The kernel's calls that Python has no names for, as they are called on 64-bit Linux."""

import ctypes
import fcntl
import os
import struct

FICLONE = 0x40049409
FICLONERANGE = 0x4020940D
FIDEDUPERANGE = 0xC0189436
FIEMAP = 0xC020660B
FIEMAP_SYNC = 1
EXTENT_LAST, EXTENT_UNKNOWN, EXTENT_DELALLOC = 1, 2, 4
EXTENT_UNWRITTEN, EXTENT_SHARED = 0x800, 0x2000
F_OFD_SETLK = 37
AT_EMPTY_PATH = 0x1000
PUNCH_HOLE = 3
BLOCK_BYTES = 4096

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def clone_range(source, source_at, target, target_at, length):
    """Has the target refer to the source's blocks."""
    fcntl.ioctl(target, FICLONERANGE, struct.pack("=qQQQ", source, source_at, length, target_at))


def share(source, source_at, target, target_at, length):
    """Compares, and shares what is equal. Returns the number of bytes that the kernel says are done, None if they differ."""
    request = struct.pack("=QQHHIqQQiI", source_at, length, 1, 0, 0, target, target_at, 0, 0, 0)
    answer = struct.unpack("=QQHHIqQQiI", fcntl.ioctl(source, FIDEDUPERANGE, request))
    done, status = answer[7], answer[8]
    if status < 0:
        raise OSError(-status, os.strerror(-status))
    return done if status == 0 else None


def extents(file, sync=True):
    """The map of a file: (first byte, place on the disk, length, flags) for each extent."""
    found, start = [], 0
    while True:
        request = bytearray(32 + 256 * 56)
        struct.pack_into("=QQIIII", request, 0, start, 2**64 - 1 - start, FIEMAP_SYNC if sync else 0, 0, 256, 0)
        fcntl.ioctl(file, FIEMAP, request)
        count = struct.unpack_from("=I", request, 20)[0]
        for index in range(count):
            logical, physical, length, _, _, flags = struct.unpack_from("=QQQQQI", request, 32 + index * 56)
            found.append((logical, physical, length, flags))
            if flags & EXTENT_LAST:
                return found
        if count == 0:
            return found
        start = found[-1][0] + found[-1][2]


def punch(file, at, length):
    _checked(_libc.fallocate(file, PUNCH_HOLE, ctypes.c_long(at), ctypes.c_long(length)))


def allocate(file, at, length):
    """Sets blocks aside that nothing was written to."""
    _checked(_libc.fallocate(file, 0, ctypes.c_long(at), ctypes.c_long(length)))


def sync_file_system(file):
    _checked(_libc.syncfs(file))


class _Handle(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def handle(file):
    """The kernel's handle of a file: its type and its bytes."""
    found, mount = _Handle(length=128), ctypes.c_int()
    _checked(_libc.name_to_handle_at(file, b"", ctypes.byref(found), ctypes.byref(mount), AT_EMPTY_PATH))
    return found.kind, bytes(found.bytes[: found.length])


def open_by_handle(mount, kind, raw, flags=os.O_RDONLY):
    wanted = _Handle(length=len(raw), kind=kind)
    ctypes.memmove(wanted.bytes, raw, len(raw))
    return _checked(_libc.open_by_handle_at(mount, ctypes.byref(wanted), flags))


def lock_range(file, is_wanted, own_opening):
    """Locks all of a file by `fcntl`, for this process or for this opening (`own_opening`)."""
    kind = fcntl.F_WRLCK if is_wanted else fcntl.F_UNLCK
    command = F_OFD_SETLK if own_opening else fcntl.F_SETLK
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
