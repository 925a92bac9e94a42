"""Control groups: so much memory, or so fast a disk, for a side's client and daemon. Both versions of the kernel's
interface are served, since machines have the one or the other.
"""

import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from .system import BenchError

# How long a process may take to end.
CLOSE_SECONDS_MAX = 20

MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True)
class Hierarchy:
    """Where a controller's groups are made."""

    root: Path
    # Of version 2, where all controllers share one hierarchy.
    unified: bool


def find(controller, mounts=MOUNTS):
    """Returns the hierarchy of a controller, such as `memory`; None where the kernel has none or it is not mounted."""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _, kind = line.partition(" - ")
        root, (fs_type, _source, options) = Path(fields.split()[4]), kind.split()[:3]
        if fs_type == "cgroup" and controller in options.split(","):
            return Hierarchy(root, unified=False)
        # What version 1 calls blkio is io in version 2.
        if fs_type == "cgroup2" and controller.removeprefix("blk") in words(root / "cgroup.controllers"):
            return Hierarchy(root, unified=True)
    return None


def words(path):
    return path.read_text(encoding="ascii").split() if path.exists() else []


def why_missing(controller):
    """Returns why there can be no group with this controller, None where there can be."""
    hierarchy = find(controller)
    if hierarchy is None:
        return f"this machine has no control groups for {controller}"
    if not os.access(hierarchy.root / "cgroup.procs", os.W_OK):
        return f"control groups below {hierarchy.root} cannot be changed"
    return None


class Group:
    """A group of processes with limits. A process of ours joins it; what that process starts is in it too."""

    def __init__(self, hierarchy, name, controllers):
        self._root = hierarchy.root
        self.path = hierarchy.root / name
        if hierarchy.unified:
            missing = [f"+{controller}" for controller in controllers if controller not in self._enabled()]
            if missing:
                put(hierarchy.root / "cgroup.subtree_control", " ".join(missing))
        self.path.mkdir(exist_ok=True)

    def _enabled(self):
        return words(self._root / "cgroup.subtree_control")

    def limit(self, file, value):
        put(self.path / file, value)

    def join(self):
        """Moves the calling process into the group: to be called in a child before it becomes another program."""
        put(self.path / "cgroup.procs", "0")

    def close(self):
        """Takes the group away; processes that are still in it go back to the whole.

        Raises BenchError where it cannot be taken away.
        """
        remove(self._root, self.path)


def remove(root, path):
    started = time.monotonic()
    while True:
        for process in words(path / "cgroup.procs"):
            try:
                put(root / "cgroup.procs", process)
            except BenchError:
                # It has ended meanwhile, or is about to.
                pass
        try:
            return path.rmdir()
        except OSError as error:
            # A process that ends gives its memory back for a while, and belongs to the group until then.
            if time.monotonic() - started > CLOSE_SECONDS_MAX:
                raise BenchError(f"cannot remove {path}: {error.strerror}") from error
            time.sleep(0.05)


def name_for(device):
    """Returns the name of the groups of the side with this file: the same for the next run in the same folder."""
    return f"onefold-bench-{zlib.crc32(os.fsencode(device)):08x}"


def clear(name):
    """Removes the groups of this name that a killed run may have left."""
    for controller in ("memory", "blkio"):
        hierarchy = find(controller)
        if hierarchy is not None and (hierarchy.root / name).is_dir():
            remove(hierarchy.root, hierarchy.root / name)


class LimitedMemory(Group):
    """A group whose processes and page cache together may take so much memory.

    Raises BenchError where there can be none.
    """

    def __init__(self, name, limit_bytes):
        hierarchy = usable("memory")
        super().__init__(hierarchy, name, ["memory"])
        self.limit_bytes = limit_bytes
        self.limit("memory.max" if hierarchy.unified else "memory.limit_in_bytes", limit_bytes)
        self._peak = self.path / ("memory.peak" if hierarchy.unified else "memory.max_usage_in_bytes")

    def was_short(self):
        """Tells whether the limit was ever felt. Kernels before 5.19 do not tell: they are believed."""
        # Charges come in batches, so the last few pages before the limit may stay unused.
        return not self._peak.exists() or int(words(self._peak)[0]) > 0.95 * self.limit_bytes


def usable(controller):
    reason = why_missing(controller)
    if reason is not None:
        raise BenchError(reason)
    return find(controller)


def slowed_disk(name, disk, bytes_per_second):
    """Returns a group for which a block device moves at most so many bytes a second, each way.

    Raises BenchError where there can be none.
    """
    hierarchy = usable("blkio")
    if not hierarchy.unified:
        return SlowedRoot(hierarchy, disk, bytes_per_second)
    # Written-back pages count for the group that made them dirty only where memory is counted too.
    group = Group(hierarchy, name, ["memory", "io"])
    group.limit("io.max", f"{device_number(disk)} rbps={bytes_per_second} wbps={bytes_per_second}")
    return group


class SlowedRoot:
    """The root group of version 1 with a slow disk. There the kernel writes pages back in the root's name, no matter
    which process made them dirty, so the limit is put where it holds for everybody, and the client works in the root group
    too.
    """

    def __init__(self, hierarchy, disk, bytes_per_second):
        self._root = hierarchy.root
        self._disk = disk
        self._set(bytes_per_second)

    def _set(self, bytes_per_second):
        for direction in ("read", "write"):
            file = self._root / f"blkio.throttle.{direction}_bps_device"
            put(file, f"{device_number(self._disk)} {bytes_per_second}")

    def join(self):
        put(self._root / "cgroup.procs", "0")

    def close(self):
        self._set(0)


def full_speed(disk):
    """Takes away what `slowed_disk` of a killed run may have left: version 1 keeps it while the device is known."""
    hierarchy = find("blkio")
    if hierarchy is not None and not hierarchy.unified and why_missing("blkio") is None:
        SlowedRoot(hierarchy, disk, 0)


def device_number(path):
    number = os.stat(path).st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def put(path, value):
    try:
        path.write_text(f"{value}\n", encoding="ascii")
    except OSError as error:
        raise BenchError(f"cannot write {value} to {path}: {error.strerror}") from error
