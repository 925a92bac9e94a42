"""ext4, twice: on a loop device, and on the disk itself.

The loop device's file is as long as the pool's and lies on the same disk; it is read and written with O_DIRECT, as the
pool's is. On the disk itself there is no file system of our own: a folder of the one that holds these files, where that
is ext4.
"""

import fcntl
import os
import shutil
import struct
import time
from pathlib import Path

from . import caches, device, system
from .side import Side

# From the kernel's ext4.h: stop at once, and do not write the journal first.
EXT4_IOC_SHUTDOWN = 0x8004587D
EXT4_GOING_FLAGS_NOLOGFLUSH = 2
# A client of a stopped file system may take a moment to notice.
STOP_SECONDS_MAX = 20
STOP_POLL_SECONDS = 0.05


class Ext4Side(Side):
    """ext4 as mkfs makes it, on a loop device."""

    name = "ext4"

    def format(self):
        self.loop = device.attach_loop(self.device)
        # Without discard the file stays allocated; without lazy initialisation nothing is written behind our back.
        options = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
        system.run("mkfs.ext4", "-q", "-F", "-E", options, self.loop)

    def attach(self):
        system.run("mount", "-t", "ext4", self.loop, self.mountpoint)

    def unmount(self):
        system.run("umount", self.mountpoint)
        # A mount while another namespace still has it mounted would only be one more of the same file system.
        device.wait_until_unused(self.loop)

    def disk_read_bytes(self):
        return system.disk_read_bytes(self.loop)

    def crash(self):
        """Makes ext4 stop in the middle, its journal as it is on disk: what XFS's and ext4's own tests do for a crash.

        A copy of the disk, taken while it is written, would be of no single moment.
        """
        folder = os.open(self.mountpoint, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", EXT4_GOING_FLAGS_NOLOGFLUSH))
        finally:
            os.close(folder)
        # Its client may take a moment to notice.
        started = time.monotonic()
        while True:
            try:
                return self.unmount()
            except system.BenchError:
                if time.monotonic() - started > STOP_SECONDS_MAX:
                    raise
                time.sleep(STOP_POLL_SECONDS)

    def recover(self):
        found = system.run("dumpe2fs", "-h", self.loop).text
        self._needed_recovery = "needs_recovery" in found
        return super().recover()

    def recovered(self):
        if not self._needed_recovery:
            raise system.NothingToRecover("ext4 had nothing to recover after the crash")
        return {}

    def close(self):
        if system.is_mounted(self.mountpoint):
            try:
                self.unmount()
            except system.BenchError:
                system.run("umount", "--lazy", self.mountpoint)
        if self.device.exists():
            device.detach_loops(self.device)
        self.loop = None
        self._leave_group()


class DiskSide(Side):
    """A folder of the ext4 that the other sides' files lie on."""

    name = "disk"

    def __init__(self, place):
        super().__init__(place)
        self.device = self.mountpoint

    def suits(self, row):
        return super().suits(row) and (self.has_journal() or not row.needs_journal)

    def has_journal(self):
        """Tells whether the file system has a journal: those of some virtual machines have none."""
        journals = Path("/proc/fs/jbd2")
        name = system.block_device_below(self.mountpoint).name
        return journals.is_dir() and any(journal.name.startswith(f"{name}-") for journal in journals.iterdir())

    @staticmethod
    def why_not(place):
        """Returns why there is none in a place, None where there can be one."""
        kind = system.file_system_type(place.folder)
        return None if kind == "ext4" else f"{place.folder} lies on {kind}"

    def format(self):
        self._empty()

    def _empty(self):
        for path in self.mountpoint.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def attach(self):
        """Nothing is to be done: it is the file system that everything lies on."""

    def unmount(self):
        os.sync()

    def make_cold(self):
        self.settle()
        self.forget_device()
        caches.drop_names()
        self.place.ballast.fill()

    def forget_device(self):
        caches.forget_all(self.mountpoint)

    def disk_read_bytes(self):
        return system.read_bytes_below(self.mountpoint)

    def crash(self):
        raise system.BenchError("the disk's own file system cannot be crashed")

    def recovered(self):
        raise system.BenchError("the disk's own file system has not crashed")

    def slow_down(self, bytes_per_second):
        raise system.BenchError("the disk itself cannot be slowed for one side")

    def full_speed(self):
        """Nothing is to be done: it is never slowed."""

    def close(self):
        self._empty()
        self._leave_group()
