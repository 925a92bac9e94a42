"""The pool under test: its daemon, how that ends, and what it takes of memory."""

import json
import os
import signal
import subprocess
import threading
import time

READY_S = 60
END_S = 120
SAMPLE_S = 0.1


class Failed(Exception):
    """Something did not go as it must."""


def until(seconds, condition):
    """Waits for a condition; tells whether it came."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Pool:
    def __init__(self, onefold, folder, memory):
        self.onefold = onefold
        self.path = os.path.join(folder, "soak.pool")
        self.mountpoint = os.path.join(folder, "mnt")
        self.log_path = os.path.join(folder, "daemon.log")
        self.memory = memory
        self.daemon = None
        self.resident_peak_bytes = 0
        os.makedirs(self.mountpoint, exist_ok=True)

    def run(self, *arguments, **options):
        """Runs a command of `onefold pool` that must succeed, and returns what it printed."""
        done = subprocess.run(
            [self.onefold, "pool", *arguments], capture_output=True, text=True, timeout=END_S, check=False, **options
        )
        if done.returncode != 0:
            raise Failed(f"`onefold pool {' '.join(arguments)}` ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def create(self, size_mib):
        self.run("create", "--quiet", "--size", f"{size_mib}M", self.path)

    def start(self):
        """Starts a daemon and does not wait for it."""
        log = open(self.log_path, "ab")
        log.write(b"--- daemon\n")
        log.flush()
        command = [self.onefold, "pool", "mount", "--foreground", "--memory", self.memory, self.path, self.mountpoint]
        with log:
            self.daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self.daemon

    def mount(self):
        """Mounts as a user does who knows nothing of what came before: no unmount, no check, no repair."""
        self.start()
        if not until(READY_S, lambda: self.is_served() or self.daemon.poll() is not None):
            raise Failed("the mount was not ready in time")
        if self.daemon.poll() is not None:
            raise Failed(f"the pool was not mounted: {self.said()}")
        threading.Thread(target=self._watch_memory, args=(self.daemon.pid,), daemon=True).start()

    def is_served(self):
        """Whether this daemon answers at the mount point."""
        return "\nmounted " in "\n" + self.said().rpartition("--- daemon\n")[2]

    def said(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def _watch_memory(self, pid):
        while True:
            try:
                with open(f"/proc/{pid}/status", encoding="ascii") as status:
                    lines = [line.split() for line in status if line.startswith("RssAnon:")]
            except OSError:
                return
            if not lines:
                return
            self.resident_peak_bytes = max(self.resident_peak_bytes, int(lines[0][1]) << 10)
            time.sleep(SAMPLE_S)

    def kill(self):
        """As `kill -9`: the mount stays behind, dead."""
        self.daemon.kill()
        self.daemon.wait(END_S)

    def terminate(self):
        """SIGTERM: the daemon unmounts under the processes that use the mount, and ends in good order."""
        self.daemon.send_signal(signal.SIGTERM)
        self._ends_well()

    def unmount(self):
        self.run("umount", self.mountpoint)
        self._ends_well()

    def _ends_well(self):
        if self.daemon.wait(END_S) != 0:
            raise Failed(f"the daemon ended with {self.daemon.returncode}: {self.said()}")

    def begin_unmount(self):
        """An unmount that goes on while something else happens to the daemon."""
        return subprocess.Popen(
            [self.onefold, "pool", "umount", self.mountpoint], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def sync(self):
        """Makes everything durable: by `fsync` of a directory, for of `syncfs` the kernel does not tell the daemon."""
        subprocess.run(["sync", self.mountpoint], check=True, timeout=END_S)

    def check(self, *flags):
        self.run("check", "--quiet", *flags, self.path)

    def stat(self):
        return json.loads(self.run("stat", "--json", self.mountpoint))["pool"]

    def mounts(self):
        """How many mounts there are at the mount point, dead ones too."""
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            return sum(line.split()[1] == self.mountpoint for line in mounts)

    def clean_up(self):
        """Leaves nothing behind, whatever has happened."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.kill()
        for _ in range(self.mounts()):
            subprocess.run(["umount", "-i", "-f", "-l", self.mountpoint], stderr=subprocess.DEVNULL, check=False)
