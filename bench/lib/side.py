"""The two sides of each comparison: a pool behind FUSE and ext4 on a loop device.

Both lie in equal files on the same disk, which both read and write with O_DIRECT. A side is mounted when it is made and
can be emptied, remounted and closed; what it costs in processor time is told by `cost_of`.
"""

import fcntl
import json
import os
import signal
import struct
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

# How long a pool may take to reclaim what was deleted and to read its filter.
SETTLE_SECONDS_MAX = 120
SETTLE_POLL_SECONDS = 0.05
# Who asks a pool for its numbers disturbs it: its background work makes way for a moment. So it is asked less often the
# longer it takes; what is timed by it is right to this part.
SETTLE_POLL_PART = 0.03
# From the kernel's ext4.h: stop at once, and do not write the journal first.
EXT4_IOC_SHUTDOWN = 0x8004587D
EXT4_GOING_FLAGS_NOLOGFLUSH = 2

# What an unmount says where a process with other mounts, a container's, still has the pool mounted.
ELSEWHERE = "in another mount namespace"

# How long a daemon may take to end once it was told to.
END_SECONDS_MAX = 20


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
        # Who the clients are.
        self.user = place.user
        # The control group that everything runs in, where a row wants one.
        self.group = None
        self._has_original = False

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


class PoolSide(Side):
    """A pool, mounted by its daemon."""

    name = "pool"
    settle_seconds_max = SETTLE_SECONDS_MAX

    def __init__(self, place, onefold, memory):
        super().__init__(place)
        self.onefold = onefold
        self.memory = memory
        self.daemon = None

    def format(self):
        system.run(self.onefold, "pool", "create", "--force", self.device)
        if not device.is_allocated(self.device):
            raise system.BenchError(f"`pool create` has punched holes into {self.device}: the sides are not equal")

    def mount_words(self):
        """Returns the options of the mount. A pool that root mounts is everybody's to use."""
        return as_words({"memory": self.memory} | self.options)

    def attach(self):
        mounted = system.run(
            self.onefold, "--json", "pool", "mount", *self.mount_words(), self.loop or self.device, self.mountpoint,
            group=self.group,
        )  # fmt: skip
        self.daemon = json.loads(mounted.text)["process"]

    def unmount(self):
        """Raises BenchError, among others, where another mount namespace has it mounted for ELSEWHERE_SECONDS_MAX."""
        started = time.monotonic()
        while True:
            try:
                system.run(self.onefold, "pool", "umount", self.mountpoint)
                break
            except system.BenchError as error:
                is_held = ELSEWHERE in str(error) and time.monotonic() - started < device.ELSEWHERE_SECONDS_MAX
                if not is_held:
                    raise
        self.daemon = None

    def stat(self):
        return json.loads(system.run(self.onefold, "--json", "pool", "stat", self.mountpoint).text)["pool"]

    def server_cpu_seconds(self):
        return system.process_cpu_seconds(self.daemon)

    def disk_read_bytes(self):
        return system.process_read_bytes(self.daemon)

    def memory_status(self):
        return system.memory_status(self.daemon)

    def counters(self):
        activity = self.stat()["activity"]
        return activity["blocks_shared"] + activity["blocks_zero"], activity["blocks_accepted"]

    def settle(self):
        super().settle()
        self._wait_until(self.is_settled)
        # What was reclaimed is free after a commit, and a sync of a change brings that about at once.
        os.utime(self.mountpoint)
        sync_folder(self.mountpoint)

    def _wait_until(self, is_done):
        started = time.monotonic()
        while not is_done():
            waited = time.monotonic() - started
            if waited > self.settle_seconds_max:
                raise system.BenchError(f"the pool is still busy {self.settle_seconds_max} s after the last change")
            time.sleep(max(SETTLE_POLL_SECONDS, waited * SETTLE_POLL_PART))

    def is_settled(self):
        stat = self.stat()
        return not (stat["reclaim_pending"] or stat["filter"]["groups_pending"])

    def crash(self):
        """Kills the daemon: what it had not written is lost, what it had written stays, as the kernel keeps nothing."""
        send(self.daemon, signal.SIGKILL)
        wait_for_end(self.daemon)
        self.daemon = None
        system.run("umount", "--lazy", self.mountpoint)

    def recovered(self):
        replayed = self.stat()["activity"]["replayed"]
        if not replayed:
            raise system.NothingToRecover("the pool had nothing to replay after the crash")
        return {"replayed": replayed}

    def wait_for_filter(self):
        """Waits until the filter has been read, so that every equal block can be found."""
        self._wait_until(lambda: not self.stat()["filter"]["groups_pending"])

    def close(self):
        if system.is_mounted(self.mountpoint):
            try:
                self.unmount()
            except system.BenchError:
                self._kill()
        self.daemon = None
        self._drop_loop()
        self._leave_group()

    def _drop_loop(self):
        if self.device.exists():
            device.detach_loops(self.device)
        self.loop = None

    def _kill(self):
        """Ends a daemon that does not unmount, first kindly; its mount goes in any case."""
        for signal_no in (signal.SIGTERM, signal.SIGKILL):
            if self.daemon is None or not send(self.daemon, signal_no):
                break
            wait_for_end(self.daemon)
        if system.is_mounted(self.mountpoint):
            system.run("umount", "--lazy", self.mountpoint)


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
                if time.monotonic() - started > END_SECONDS_MAX:
                    raise
                time.sleep(SETTLE_POLL_SECONDS)

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


def as_words(options):
    """Returns options as a command takes them; one that is True has no value."""
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]


def sync_folder(path):
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def send(pid, signal_no):
    """Sends a signal; tells whether there was a process to take it."""
    try:
        os.kill(pid, signal_no)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pid):
    started = time.monotonic()
    while send(pid, 0) and time.monotonic() - started < END_SECONDS_MAX:
        time.sleep(SETTLE_POLL_SECONDS)
