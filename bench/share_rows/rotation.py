"""`share watch` beside images that are overwritten in place while they stay open, until its rotation has come round.

On XFS no cheap signal tells which blocks of an open image were overwritten where they lie. The watch reads the images
again in turn, within twice the bytes that their guests write. So once the guests have written half of what the images
hold, every block was read, and what was written before that turn must be shared.
"""

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

from .row import ShareRow
from .watching import IMAGES, LOOK_SECONDS, POOL, WRITTEN_PART, shared, wait_for_share

# Bytes that the watch may read for a byte written.
LIMIT = 2
# What the guests write in all, in parts of what one turn takes: some of the limit goes to ranges that moved.
TURNS = 1.25
# How long a change waits for others at most.
WAIT_LOOKS = 5


class RotationRow(ShareRow):
    """Blocks that another file has are written first. Blocks that no file has follow, and make room in the limit."""

    base = "rotation"
    share_of_time = 1.5

    def make_lines(self, settings):
        title = f"`share watch` beside {IMAGES} open images on {self.where}, overwritten in place"
        missed = f"{title}: not shared of it once the rotation has come round, in percent"
        yield lower(f"{self.name}-missed", missed, "%", goal="at most 10 %")
        yield lower(f"{self.name}-read", "bytes read for a byte written until then", "", goal="at most 8 / 2")

    def measure(self, ground, settings, round_no):
        ground.open()
        draw = random.Random(seed_of(round_no, use=90))
        length = settings.rotation_image_bytes
        ground.write(POOL, UniqueData(seed_of(round_no, use=91)), length)
        names = [f"guest{number}" for number in range(IMAGES)]
        for number, name in enumerate(names):
            ground.write(name, UniqueData(seed_of(round_no, use=92 + number)), length)
        # What was read before counts for nothing.
        ground.share()
        pool = ground.path(POOL).read_bytes()
        told = ground.folder / "watch.lines"
        times = ("--interval", f"{LOOK_SECONDS}s", "--max-wait", f"{WAIT_LOOKS * LOOK_SECONDS}s")
        words = ("share", "watch", "--json", *times, "--temporary", ground.temporary)
        guests = [os.open(ground.path(name), os.O_RDWR) for name in names]
        try:
            with open(told, "wb") as lines:
                watch = subprocess.Popen([ground.programs.onefold, *words, ground.mountpoint], stdout=lines)
            try:
                time.sleep(2 * LOOK_SECONDS)
                read_before = system.read_by(watch.pid)
                wanted = write_pool_blocks(guests, pool, draw)
                written = wanted + write_other_blocks(guests, length, settings.watch_seconds, draw)
                done = wait_for_share(told, wanted, (WAIT_LOOKS + 4) * LOOK_SECONDS)
                read = system.read_by(watch.pid) - read_before
            finally:
                watch.send_signal(signal.SIGTERM)
                watch.wait(timeout=60)
        finally:
            for guest in guests:
                os.close(guest)
        more = {"read": read, "written": written}
        yield f"{self.name}-read", ONEFOLD, Sample(read / written, more=more)
        missed = 100 * max(0.0, 1 - min(done, shared(told)) / wanted)
        yield f"{self.name}-missed", ONEFOLD, Sample(missed, more={"shared": done, "wanted": wanted})
        ground.close()


def write_pool_blocks(guests, pool, draw):
    """Writes blocks of the pool to even blocks of all images, each block once; returns how many bytes these are."""
    blocks = len(pool) // BLOCK_BYTES
    count = max(1, int(blocks * WRITTEN_PART))
    for guest in guests:
        for block in draw.sample(range(0, blocks, 2), count):
            at = draw.randrange(blocks) * BLOCK_BYTES
            os.pwrite(guest, pool[at : at + BLOCK_BYTES], block * BLOCK_BYTES)
    for guest in guests:
        os.fdatasync(guest)
    return count * len(guests) * BLOCK_BYTES


def write_other_blocks(guests, length, seconds, draw):
    """Writes blocks of random bytes to odd blocks of all images, spread over a time; returns how many bytes these are."""
    blocks = length // BLOCK_BYTES
    count = int(blocks * len(guests) / LIMIT * TURNS)
    began = time.monotonic()
    for number in range(count):
        block = draw.randrange(1, blocks, 2)
        os.pwrite(guests[number % len(guests)], draw.randbytes(BLOCK_BYTES), block * BLOCK_BYTES)
        if number % 64 == 0:
            time.sleep(max(0.0, began + seconds * number / count - time.monotonic()))
    return count * BLOCK_BYTES
