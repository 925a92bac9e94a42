"""`share watch` beside twenty images that are written to: how much it reads for that, and what it shares of it.

One percent of random writes in an hour is what the images of idle servers see. An hour is scaled to a minute at full
size: the same writes, looks and passes, in less time. Smaller sizes have fewer looks. Each write brings a block that
another file has, so all of it could be shared.
"""

import json
import os
import random
import signal
import subprocess
import time

from lib import system
from lib.data import BLOCK_BYTES, UniqueData
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, lower
from lib.rows.row import seed_of

from .ground import XFS
from .row import ShareRow

IMAGES = 20
POOL = "pool"
WRITTEN_PART = 0.01
# A look a second: sixty in what stands for an hour, as the watch has them where nothing else is said.
LOOK_SECONDS = 1
# Once nobody has them open any more, images are read to their end: a second for each 16 MiB, and some looks.
QUIET_BYTES_A_SECOND = 16 << 20
WAIT_SECONDS = 120


class WatchRow(ShareRow):
    """Images that a process has open all the time, as a hypervisor has; and what a run finds that reads all of them."""

    base = "watch"
    share_of_time = 3.0

    def make_lines(self, settings):
        where = f"beside {IMAGES} images on {self.where} of which 1 % is written"
        title = f"`share watch` {where}: bytes read for a byte written"
        yield lower(f"{self.name}-read", title, "", goal="at most 8 / 2")
        missed, left = ("report", "at most 10 %") if self.kind == XFS else ("at most 5 %", "at most 5 %")
        yield lower(f"{self.name}-missed", "not shared of it while they are open, in percent", "%", goal=missed)
        yield lower(f"{self.name}-left", "and once nobody has them open", "%", goal=left)

    def measure(self, ground, settings, round_no):
        ground.open()
        draw = random.Random(seed_of(round_no, use=60))
        length = settings.watch_image_bytes
        ground.write(POOL, UniqueData(seed_of(round_no, use=61)), length)
        names = [f"guest{number}" for number in range(IMAGES)]
        for number, name in enumerate(names):
            ground.write(name, UniqueData(seed_of(round_no, use=62 + number)), length)
        # What was read before counts for nothing.
        ground.share()
        ground.warm(POOL)
        pool = ground.path(POOL).read_bytes()
        told = ground.folder / "watch.lines"
        # What waits is shared after an hour at the latest, where nothing else is said.
        hour = settings.watch_seconds
        times = ("--interval", f"{LOOK_SECONDS}s", "--max-wait", f"{hour}s")
        words = ("share", "watch", "--json", *times, "--temporary", ground.temporary)
        with open(told, "wb") as lines:
            watch = subprocess.Popen([ground.programs.onefold, *words, ground.mountpoint], stdout=lines)
        try:
            time.sleep(2 * LOOK_SECONDS)
            read_before = system.read_by(watch.pid)
            written = write_to(ground, names, pool, hour, draw)
            # The last writes are shared by the pass that ends their hour.
            while_open = wait_for_share(told, written.bytes, hour + 4 * LOOK_SECONDS)
            read = system.read_by(watch.pid) - read_before
            for file in written.files:
                os.close(file)
            once_quiet = wait_for_share(told, written.bytes, hour + WAIT_SECONDS + length / QUIET_BYTES_A_SECOND)
        finally:
            watch.send_signal(signal.SIGTERM)
            watch.wait(timeout=60)
        # What a full reading finds beyond that.
        rest = ground.share().told["shared"]["now_bytes"]
        yield f"{self.name}-read", ONEFOLD, Sample(read / written.bytes, more={"read": read, "written": written.bytes})
        for key, done in (("missed", while_open), ("left", once_quiet)):
            full = max(once_quiet + rest, done, BLOCK_BYTES)
            yield f"{self.name}-{key}", ONEFOLD, Sample(100 * (1 - done / full), more={"shared": done, "full": full})
        ground.close()


class Written:
    """Images that are open, and how much was written to them."""

    def __init__(self):
        self.files = []
        self.bytes = 0


def write_to(ground, names, pool, seconds, draw):
    """Writes blocks of the pool to random places of all images, spread over a time; leaves them open."""
    written = Written()
    written.files = [os.open(ground.path(name), os.O_RDWR) for name in names]
    blocks = len(pool) // BLOCK_BYTES
    count = max(1, int(blocks * WRITTEN_PART)) * len(names)
    began = time.monotonic()
    for number in range(count):
        at = draw.randrange(blocks) * BLOCK_BYTES
        os.pwrite(written.files[number % len(names)], pool[at : at + BLOCK_BYTES], draw.randrange(blocks) * BLOCK_BYTES)
        written.bytes += BLOCK_BYTES
        time.sleep(max(0.0, began + seconds * number / count - time.monotonic()))
    return written


def wait_for_share(told, wanted, seconds):
    """Waits until a watch has shared nearly so many bytes, or for so many seconds; returns how many it has shared."""
    deadline = time.monotonic() + seconds
    while shared(told) < wanted * 0.99 and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return shared(told)


def shared(told):
    """Returns how many bytes a watch has shared, by what it printed."""
    lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    return sum(line["shared_bytes"] for line in lines if line["event"] == "passed")
