"""What a side of a comparison is: a file system under test, and the clients that work on it.

A side is mounted when it is made and can be emptied, remounted and closed; what it costs in processor time is told by
`cost_of`. Pools are in `pool_side`, ext4 is in `ext4_sides`.
"""

import json
import os
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext
from pathlib import Path

from . import caches, cgroup, device, system
from .measure import Cost

# The file that several rows work with; no row has a seed as high.
ORIGINAL = "original"
ORIGINAL_SEED = 1 << 20

CLIENT = Path(__file__).with_name("client.py")


class Side(ABC):
    """One file system under test."""

    name = ""

    def __init__(self, place):
        self.place = place
        self.device = place.folder / f"{self.name}.device"
        self.mountpoint = place.folder / f"{self.name}.mount"
        self.mountpoint.mkdir(exist_ok=True)
        # The loop device on the device's file, where the file system goes through one.
        self.loop = None
        # Records where the time of what is measured goes, where that is wanted.
        self.profiler = None
        # Options of `pool mount` for as long as a row wants them, in place of the run's own.
        self.options = {}
        # The user of the clients.
        self.user = place.user
        # The control group that everything runs in, where a row wants one.
        self.group = None
        self._has_original = False

    def suits(self, row):
        """Tells whether a row can be measured on it."""
        return self.name in row.sides

    @abstractmethod
    def format(self):
        """Makes an empty file system in the device's file."""

    @abstractmethod
    def attach(self):
        """Mounts it, and no more."""

    def mount(self):
        """Mounts it. Its root folder is the clients', as each file that they make is."""
        self.attach()
        self.user.own(self.mountpoint)

    @abstractmethod
    def unmount(self):
        """Unmounts it; everything is on disk then."""

    @abstractmethod
    def close(self):
        """Takes away whatever is there of it, in whatever state; nothing where nothing is there."""

    def server_cpu_seconds(self):
        """Returns the processor time of the process that serves the file system, if there is one."""
        return 0.0

    @abstractmethod
    def disk_read_bytes(self):
        """Returns how much was read from the device's file since it was mounted, or from any moment before that."""

    def counters(self):
        """Returns counters of blocks shared and accepted, where the file system shares any."""
        return None

    def settle(self):
        """Waits until what was done before costs nothing any more."""
        os.sync()

    def path(self, name):
        return self.mountpoint / name

    def make_folder(self, name):
        """Makes a folder that is the clients'; returns its path."""
        self.path(name).mkdir()
        self.user.own(self.path(name))
        return self.path(name)

    @contextmanager
    def clients_are(self, user):
        """Has another user be the clients' for what goes on inside."""
        before, self.user = self.user, user
        try:
            yield
        finally:
            self.user = before

    def remove(self, *names):
        for name in names:
            self.path(name).unlink(missing_ok=True)
        self.settle()

    def remount(self, group=None, **options):
        """Mounts it anew; with options of `pool mount`, which mean nothing to ext4, and in a control group.

        Both stay for client and daemon until the next `remount`, or until the row has failed.
        """
        self.unmount()
        self._leave_group()
        self.group, self.options = group, options
        self.mount()

    def _leave_group(self):
        group, self.group, self.options = self.group, None, {}
        if group is not None:
            group.close()

    def have_original(self, length):
        """Sees to it that there is the file of unique blocks that several rows work with, each after the other."""
        if not self._has_original:
            self.client("write", self.path(ORIGINAL), bytes=length, seed=ORIGINAL_SEED)
            self._has_original = True

    def drop_original(self):
        """Takes that file away, for rows that need its room or have changed it."""
        if self._has_original:
            self._has_original = False
            self.remove(ORIGINAL)

    def forget_original(self):
        """Is told that the file system was made anew."""
        self._has_original = False

    def slow_down(self, bytes_per_second):
        """Puts it on a disk that moves at most so many bytes a second each way, until `full_speed`."""
        self.unmount()
        if self.loop is None:
            self.loop = device.attach_loop(self.device)
        self.group = cgroup.slowed_disk(self.group_name(), self.loop, bytes_per_second)
        self.mount()

    def full_speed(self):
        """Takes away what `slow_down` did."""
        self.unmount()
        self._leave_group()
        self._drop_loop()
        self.mount()

    def _drop_loop(self):
        """Gives up a loop device that the file system can do without."""

    def group_name(self):
        return cgroup.name_for(self.device)

    def make_cold(self):
        """Empties every cache of it: the server's, and the kernel's above and below, while other memory stays warm."""
        # It takes the file system's own pages, names and inodes with it.
        self.unmount()
        self.forget_device()
        self.mount()
        self.settle()
        self.place.ballast.fill()

    def forget_device(self):
        """Drops what the kernel has cached of an unmounted side's disk."""
        for path in filter(None, (self.loop, self.device)):
            caches.forget(path)

    def client(self, job, path, **options):
        """Runs the client program; returns its answer and what it cost."""
        words = as_words(options)
        with self.cost_of() as cost:
            finished = system.run(self.place.python, "-B", CLIENT, job, path, *words, group=self.group, user=self.user)
        answer = json.loads(finished.text)
        # The start of the interpreter is not the client's work.
        cost.client_seconds = answer["cpu_seconds"]
        return answer, cost

    def command(self, *words):
        """Runs any other program; returns what it printed and took, and what it cost."""
        with self.cost_of() as cost:
            finished = system.run(*words, group=self.group, user=self.user)
        cost.client_seconds = finished.cpu_seconds
        return finished, cost

    @contextmanager
    def background_client(self, job, path, **options):
        """Runs the client program beside what goes on inside, and kills it afterwards."""
        words = (self.place.python, "-B", CLIENT, job, path, *as_words(options))
        with system.in_background(*words, group=self.group, user=self.user) as process:
            yield process

    @abstractmethod
    def crash(self):
        """Stops it as a crash would; it is not mounted any more then."""

    def recover(self):
        """Mounts what a crash has left, with cold caches; returns how many seconds that took."""
        self.forget_device()
        started = time.perf_counter()
        self.mount()
        return time.perf_counter() - started

    @abstractmethod
    def recovered(self):
        """Returns figures about the recovery; raises NothingToRecover where there was nothing."""

    @contextmanager
    def cost_of(self):
        """Measures what goes on inside: a Cost whose client is still to be filled in."""
        cost = Cost()
        self.place.ballast.fill()
        counters, server, machine = self.counters(), self.server_cpu_seconds(), system.machine_cpu_seconds()
        with self.profiler.around(self.name) if self.profiler else nullcontext():
            yield cost
        cost.server_seconds = self.server_cpu_seconds() - server
        cost.machine_seconds = system.machine_cpu_seconds() - machine
        if counters is not None:
            shared, accepted = (after - before for after, before in zip(self.counters(), counters))
            cost.shared_part = shared / accepted if accepted else None


def as_words(options):
    """Returns options as a command takes them; one that is True has no value."""
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]


def sync_folder(path):
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
