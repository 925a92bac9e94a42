"""`pool dedup --files` is killed at any moment: each image of the pool holds what it held, and the next run ends as one
that nobody killed."""

import json
import subprocess
import time

from host import Failed, call, started, sum_of

# How long a program waits before it opens a pool that a dead one has left open: another host might have it.
LEFT_OPEN_S = 10
# How long the kernel may take to let go of a pool after a kill.
LET_GO_S = 20


def dedup(onefold, pool):
    return [onefold, "pool", "dedup", "--files", "--json", "--quiet", str(pool)]


class Mount:
    """A pool that is mounted."""

    def __init__(self, onefold, pool, mountpoint):
        self.onefold, self.at = onefold, mountpoint
        mountpoint.mkdir(exist_ok=True)
        call(onefold, "pool", "mount", "--memory", "128M", "--dedup", "off", pool, mountpoint)

    def __enter__(self):
        return self.at

    def __exit__(self, *_):
        call(self.onefold, "pool", "umount", self.at)


class Pools:
    def __init__(self, onefold, made, counts, folder):
        self.onefold, self.counts = onefold, counts
        self.filled, self.pool, self.at = folder / "filled.pool", folder / "tried.pool", folder / "pool"
        call(onefold, "pool", "create", "--quiet", "--size", "1G", self.filled)
        with Mount(onefold, self.filled, self.at) as at:
            for image in made:
                call("cp", "--sparse=always", image, at)
            self.sums = {path.name: sum_of(path) for path in sorted(at.iterdir())}
        self.fresh()
        began = time.monotonic()
        call(*dedup(onefold, self.pool))
        self.seconds = time.monotonic() - began
        self.expected = self.stored()

    def fresh(self):
        call("cp", "--sparse=always", self.filled, self.pool)

    def stored(self):
        return json.loads(call(self.onefold, "pool", "stat", "--json", self.pool))["pool"]["distinct_bytes"]

    def round(self, dice):
        self.fresh()
        pauses = [dice.uniform(0, self.seconds)]
        if dice.randrange(2):
            pauses.append(LEFT_OPEN_S + dice.uniform(0, self.seconds))
        for pause in pauses:
            nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with started(dedup(self.onefold, self.pool), **nowhere) as process:
                time.sleep(pause)
                self.counts["kills"] += int(process.poll() is None)
            self.check_left_open()
        call(*dedup(self.onefold, self.pool))
        call(self.onefold, "pool", "check", "--quiet", "--data", self.pool)
        when = f"`pool dedup --files` killed after {pauses} s"
        if self.stored() != self.expected:
            raise Failed(f"{when}: {self.stored()} bytes are stored, and without kills {self.expected}")
        with Mount(self.onefold, self.pool, self.at) as at:
            changed = [name for name, expected in self.sums.items() if sum_of(at / name) != expected]
        if changed:
            raise Failed(f"{when}: {changed} changed")

    def check_left_open(self):
        """Checks a pool whose program was killed. The kernel ends that one's requests, and then lets go of the pool."""
        ends = time.monotonic() + LET_GO_S
        while True:
            try:
                call(self.onefold, "pool", "check", "--quiet", self.pool)
                return
            except Failed as failure:
                if "is in use" not in str(failure) or time.monotonic() > ends:
                    raise
            time.sleep(0.1)
