"""A pool behind FUSE, served by its daemon, in a file that the daemon reads and writes with O_DIRECT."""

import json
import os
import signal
import time

from . import device, system
from .side import Side, as_words, sync_folder

# How long a pool may take to reclaim what was deleted and to read its filter.
SETTLE_SECONDS_MAX = 120
SETTLE_POLL_SECONDS = 0.05
# A question for its numbers disturbs a pool: its background work makes way for a moment. So it is asked less often the
# longer it takes; what is timed by it is right to this part.
SETTLE_POLL_PART = 0.03

# What an unmount says where a process with other mounts, a container's, still has the pool mounted.
ELSEWHERE = "in another mount namespace"

# How long a daemon may take to end once it was told to.
END_SECONDS_MAX = 20
END_POLL_SECONDS = 0.05


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
        time.sleep(END_POLL_SECONDS)
