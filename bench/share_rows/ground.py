"""The file system that a row works on, made anew for it on one disk, and the programs that work there."""

import json
import os
import shutil
from dataclasses import dataclass

from lib import caches, device, system
from lib.data import BLOCK_BYTES, CHUNK_BYTES
from lib.measure import Cost
from lib.system import BenchError

XFS, BTRFS = "xfs", "btrfs"
NAMES = {XFS: "XFS", BTRFS: "Btrfs"}
# Without discards, which would take blocks from the disk's file and have later writes pay for them.
MKFS = {
    # Sectors of 4 KiB, as the file below has them: what is shorter it writes one request after the other.
    XFS: ("mkfs.xfs", "-f", "-q", "-K", "-s", "size=4096", "-m", "reflink=1"),
    BTRFS: ("mkfs.btrfs", "-f", "-q", "--nodiscard"),
}
# What `share run` keeps.
STATE = ".onefold"


@dataclass
class Pass:
    """One `share run`: what it says in JSON, how long it took, what it cost."""

    told: dict
    seconds: float
    cost: Cost

    def seconds_of(self, *parts):
        return sum(self.told["seconds_of"][part] for part in parts)


class Ground:
    """A file system on a loop device."""

    def __init__(self, place, programs, kind):
        self.kind = kind
        self.programs = programs
        self.place = place
        self.folder = folder = place.folder
        self.device = folder / "disk.device"
        self.mountpoint = folder / "disk.mount"
        self.temporary = folder / "temporary"
        self.loop = None

    def open(self):
        """Makes an empty file system and mounts it."""
        self.close()
        self.mountpoint.mkdir(exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        self.loop = device.attach_loop(self.device)
        system.run(*MKFS[self.kind], self.loop)
        self._mount()

    def _mount(self):
        system.run("mount", "-t", self.kind, self.loop, self.mountpoint)

    def close(self):
        """Unmounts it, in whatever state it is."""
        system.unmount(self.mountpoint)
        device.detach_loops(self.device)
        self.loop = None

    def path(self, name):
        return self.mountpoint / name

    def write(self, name, data, length, hole_bytes=0):
        """Writes a file of one of the streams of lib/data.py, with holes where so much of each chunk is zero at its
        beginning; it is on the disk then.
        """
        with open(self.path(name), "wb") as file:
            for index in range(length // CHUNK_BYTES):
                file.seek(hole_bytes, os.SEEK_CUR)
                file.write(data.chunk(index)[hole_bytes:])
            file.flush()
            os.fsync(file.fileno())
        self.place.user.own(self.path(name))

    def copy(self, image, name=None):
        """Copies an image without the blocks of it that are zero."""
        system.run("cp", "--sparse=always", "--reflink=never", image, self.path(name or image.name))

    def warm(self, *names):
        """Has files in the page cache."""
        for name in names:
            with open(self.path(name), "rb") as file:
                while file.read(CHUNK_BYTES):
                    pass

    def make_cold(self):
        """Empties every cache of the file system, above and below its loop device, while other memory stays warm."""
        # It takes the file system's own pages, names and inodes with it.
        system.run("umount", self.mountpoint)
        device.wait_until_unused(self.loop)
        for path in (self.loop, self.device):
            caches.forget(path)
        self._mount()
        self.place.ballast.fill()

    def free_bytes(self):
        """Returns what is free by the file system's own books, once they are up to date."""
        if self.kind == BTRFS:
            # Blocks that an extent has lost come free with a transaction, some with the one after it.
            for _ in range(2):
                system.run("btrfs", "filesystem", "sync", self.mountpoint)
        system.run("sync", "--file-system", self.mountpoint)
        room = os.statvfs(self.mountpoint)
        return room.f_bfree * room.f_frsize

    def state_bytes(self):
        """Returns how much of the disk the folder takes that sharing keeps its records in, without the arena, which
        owns no block.
        """
        files = (path for path in self.path(STATE).rglob("*") if path.is_file() and path.parent.name != "arena")
        return system.stored_bytes(*files)

    def images(self):
        """Returns the files that are not Onefold's own, by name."""
        return sorted(path for path in self.mountpoint.iterdir() if path.is_file())

    def arena_files(self):
        """Returns the files whose slots images share with."""
        return sorted(path for path in self.path(STATE).joinpath("arena").iterdir() if path.is_file())

    def forget(self):
        """Deletes all that sharing knows."""
        shutil.rmtree(self.path(STATE), ignore_errors=True)

    def command(self, *words):
        """Returns the words of a `share run` on all of it."""
        onefold, temporary = self.programs.onefold, ("--temporary", self.temporary)
        return (onefold, "share", "run", "--quiet", "--json", *temporary, *words, self.mountpoint)

    def share(self, *words):
        """Shares all that is equal; returns a Pass. Raises BenchError where a file could not be shared."""
        finished, cost = self.timed(*self.command(*words))
        return Pass(told_quietly(finished.text), finished.seconds, cost)

    def calls(self, source, target, pairs):
        """Has the kernel share pairs, with nothing around the calls; returns what the program tells of them."""
        text = "".join(f"{source} {target} {count}\n" for source, target, count in pairs)
        words = (self.programs.synthetic, "calls", self.mountpoint, source, target)
        finished, cost = self.timed(*words, text=text)
        return json.loads(finished.text), cost

    def timed(self, *command, **more):
        """Runs a program; returns what it printed and took, and what it cost."""
        self.place.ballast.fill()
        machine = system.machine_cpu_seconds()
        finished = system.run(*command, **more)
        return finished, Cost(finished.cpu_seconds, 0.0, system.machine_cpu_seconds() - machine)

    def shared_or_raise(self, told, length, what):
        """Raises BenchError where not nearly all of what is equal was shared: the rate would be of less work."""
        done = told["shared"]["now_bytes"] + told["shared"]["before_bytes"]
        if done < length * 0.99:
            raise BenchError(f"{what}: {done / BLOCK_BYTES:.0f} of {length / BLOCK_BYTES:.0f} blocks were shared")


def told_quietly(text):
    """Returns what a `share run` says in JSON. Raises BenchError where a file could not be shared."""
    told = json.loads(text)
    # Blocks that somebody overwrites meanwhile are none of it.
    trouble = {name: value for name, value in told["trouble"].items() if value and name != "changed_blocks"}
    if trouble:
        raise BenchError(f"the pass was not a quiet one: {trouble}")
    return told
