"""Operations on a real folder, and what it holds."""

import ctypes
import mmap
import os

from contents import UNIT_BYTES, Torn, parse, render
from expectations import Wrong, content_of

PUNCH = 1 | 2
KEEP_SIZE = 1
READ_BYTES = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def _fallocate(fd, mode, at, units):
    if _libc.fallocate(fd, mode, ctypes.c_int64(at * UNIT_BYTES), ctypes.c_int64(units * UNIT_BYTES)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Folder:
    """Does operations for real. Each returns how many units it got through, or `None` for all that it was to do."""

    def __init__(self, root):
        self.root = root

    def do(self, operation):
        kind = operation["do"]
        path = os.path.join(self.root, operation["path"])
        if kind == "unlink":
            return os.unlink(path)
        if kind == "rename":
            return os.rename(path, os.path.join(self.root, operation["to"]))
        flags = os.O_RDWR
        flags |= {"create": os.O_CREAT | os.O_EXCL, "write sync": os.O_SYNC, "write direct": os.O_DIRECT}.get(kind, 0)
        fd = os.open(path, flags, 0o600)
        try:
            return self._do_on_file(kind, fd, operation)
        finally:
            os.close(fd)

    def _do_on_file(self, kind, fd, operation):
        if kind in ("write", "write sync"):
            return self._write(fd, operation, render(content_of(operation)))
        if kind == "write direct":
            # A mapping without a file is aligned as O_DIRECT wants it.
            data = render(content_of(operation))
            with mmap.mmap(-1, len(data)) as buffer:
                buffer[:] = data
                return self._write(fd, operation, buffer)
        if kind == "map":
            return self._write_mapped(fd, operation)
        if kind == "copy":
            return self._copy(fd, operation)
        if kind == "truncate":
            return os.ftruncate(fd, operation["units"] * UNIT_BYTES)
        if kind == "punch":
            return _fallocate(fd, PUNCH, operation["at"], operation["units"])
        if kind == "reserve":
            return _fallocate(fd, KEEP_SIZE, operation["at"], operation["units"])
        if kind == "fsync":
            return os.fsync(fd)
        return None

    @staticmethod
    def _write(fd, operation, data):
        return os.pwrite(fd, data, operation["at"] * UNIT_BYTES) // UNIT_BYTES

    @staticmethod
    def _write_mapped(fd, operation):
        data = render(content_of(operation))
        start = operation["at"] * UNIT_BYTES
        with mmap.mmap(fd, 0) as mapping:
            mapping[start : start + len(data)] = data
            # msync: fails where the pool has no room for what was changed.
            mapping.flush()

    def _copy(self, target, operation):
        source = os.open(os.path.join(self.root, operation["from"]), os.O_RDONLY)
        done, wanted = 0, operation["units"] * UNIT_BYTES
        try:
            while done < wanted:
                start, at = operation["start"] * UNIT_BYTES, operation["at"] * UNIT_BYTES
                copied = os.copy_file_range(source, target, wanted - done, start + done, at + done)
                if copied == 0:
                    break
                done += copied
        except OSError:
            # What came before stays; the next operation meets the same error.
            if done == 0:
                raise
        finally:
            os.close(source)
        return done // UNIT_BYTES

    def read(self, path, at, units):
        """The numbers in a piece of a file."""
        with open(os.path.join(self.root, path), "rb") as file:
            return parse(os.pread(file.fileno(), units * UNIT_BYTES, at * UNIT_BYTES))

    def tree(self):
        """All that is there, read to the last byte."""
        found = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), self.root)
                try:
                    found[path] = read_file(os.path.join(folder, name))
                except Torn as torn:
                    raise Wrong(f"`{path}` is torn: {torn}") from torn
        return found


def read_file(path):
    """A whole file, in pieces: its bytes are many times its numbers."""
    values = parse(b"")
    with open(path, "rb") as file:
        while data := file.read(READ_BYTES):
            values += parse(data)
    return values
