"""Table 1 of the paper as Onefold's switches, and the file systems that are made from it."""

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass

from lib import device, system, workplace
from lib.ext4_sides import Ext4Side
from lib.pool_side import PoolSide, send, wait_for_end
from lib.settings import PAPER_INDEX_BITS, PAPER_TAG_BITS

# All sides work on one file, one after the other, formatted anew for each turn: the same place on the same disk.
DEVICE = "paper.device"

# Experiment A4.
COMMIT_INTERVAL = "5s"

# Of linux/ext4.h: stop at once, and do not flush the journal first, as a power cut does not either.
EXT4_IOC_SHUTDOWN = 0x8004587D
EXT4_GOING_FLAGS_NOLOGFLUSH = 2


@dataclass(frozen=True)
class Variant:
    """One line of the paper's Table 1; also of ours that are not there."""

    key: str
    title: str
    stores: str = "in-groups"
    prefetch: str = "adaptive"
    journal: str = "on"
    # Whether the filter has the paper's n and k; else the pool picks them.
    paper_filter: bool = True

    def create_words(self):
        return ["--stores", self.stores]

    def mount_words(self, index_bits=PAPER_INDEX_BITS, tag_bits=PAPER_TAG_BITS):
        words = ["--prefetch", self.prefetch, "--journal", self.journal, "--commit-interval", COMMIT_INTERVAL]
        if self.paper_filter:
            words += ["--filter-index-bits", str(index_bits), "--filter-tag-bits", str(tag_bits)]
        return words


VARIANTS = (
    Variant("J", "LiveDFS-J", stores="at-end", prefetch="never"),
    Variant("S", "LiveDFS-S", prefetch="never", journal="off"),
    Variant("SJ", "LiveDFS-SJ", prefetch="never"),
    Variant("all", "LiveDFS-all", prefetch="always"),
    Variant("defaults", "Onefold's defaults", paper_filter=False),
)


class VariantSide(PoolSide):
    """A pool with the switches of a variant."""

    def __init__(self, place, onefold, settings, variant):
        self.name = variant.key
        super().__init__(place, onefold, settings.memory)
        self.device = place.folder / DEVICE
        self.title = variant.title
        self.variant = variant
        self.filter_bits = (settings.index_bits, settings.tag_bits)

    def format(self):
        system.run(self.onefold, "pool", "create", "--force", *self.variant.create_words(), self.device)
        if not device.is_allocated(self.device):
            raise system.BenchError(f"`pool create` has punched holes into {self.device}: the sides are not equal")

    def mount_words(self):
        return [*super().mount_words(), *self.variant.mount_words(*self.filter_bits)]

    def recovers(self):
        return self.variant.journal == "on"

    def crash(self):
        """Ends the daemon without a word of warning. Data that it has written stays: no test of lost writes, this."""
        send(self.daemon, signal.SIGKILL)
        wait_for_end(self.daemon)

    def take_away_crashed(self):
        """Takes away the mount that `crash` left."""
        self.daemon = None
        system.run("umount", "--lazy", self.mountpoint)

    def check(self):
        """Raises BenchError where the unmounted pool is damaged."""
        system.run(self.onefold, "pool", "check", self.device)

    def insert(self, image, name):
        """Imports an image; returns the seconds that the command took."""
        command = (self.onefold, "--quiet", "pool", "import", self.mountpoint, image, "--to", name)
        return system.run(*command, user=self.user).seconds


class PlainSide(Ext4Side):
    """ext4 as mkfs makes it: what the paper has Ext3FS for."""

    title = "ext4"

    def __init__(self, place):
        super().__init__(place)
        self.device = place.folder / DEVICE

    def recovers(self):
        return True

    def crash(self):
        """Stops the file system where it is; what is not in its journal on disk is lost."""
        file = os.open(self.mountpoint, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(file, EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH.to_bytes(4, "little"))
        finally:
            os.close(file)

    def take_away_crashed(self):
        """Takes away the mount that `crash` left, which no program may use any more."""
        self.unmount()

    def check(self):
        """Raises BenchError where the unmounted file system is damaged."""
        system.run("e2fsck", "-f", "-n", self.loop)

    def insert(self, image, name):
        return system.run("cp", "--sparse=always", image, self.path(name), user=self.user).seconds


@contextlib.contextmanager
def turn(side):
    """Makes an empty file system for one side's turn and takes it away again, whatever happens."""
    side.format()
    try:
        side.mount()
        side.settle()
        yield side
    finally:
        with workplace.uninterrupted():
            side.close()


def timed(action):
    """Returns the seconds that an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
