"""The experiments of the paper's section 4, each as one turn of one side on an empty file system.

A turn returns its values by series. It measures nothing while the side still has work left over from before.
"""

import json
import subprocess
import time
from pathlib import Path

from lib import system
from lib.rows.imports import read_through
from lib.rows.row import MB, expect_unique, seed_of
from lib.settings import PAPER_IMAGES_MAX
from lib.side import CLIENT
from lib.system import BenchError

from . import results
from .variants import timed

FETCH = Path(__file__).with_name("fetch.py")

# Less of a duplicate stream shared than this is no measurement of duplicates.
SHARED_PART_MIN = 0.99

# Written and synced before a crash; must be there after it.
KEPT_BYTES = 4 << 20
# The file that is being written then.
CRASHED = "a4"
CRASH_POLL_SECONDS = 0.002
# A fast writer may be done when a slow machine gets round to the crash.
CRASH_TRIES = 3
CRASH_SECONDS_MAX = 120


def streams(side, settings, round_no):
    """A1, A2, A3 (Figures 7 to 9): a file of unique blocks is written, read, and written again under another name."""
    length, seed = settings.file_bytes, seed_of(round_no, use=12)
    # Just made and mounted, the side is cold.
    written, cost = side.client("write", side.path("a1"), bytes=length, seed=seed)
    expect_unique(cost, "experiment A1")
    side.make_cold()
    read, _ = side.client("read", side.path("a1"), bytes=length, seed=seed)
    side.make_cold()
    again, cost = side.client("write", side.path("a3"), bytes=length, seed=seed)
    if cost.shared_part is not None and cost.shared_part < SHARED_PART_MIN:
        raise BenchError(f"experiment A3: only {cost.shared_part:.1%} of the blocks were shared; all are duplicates")
    throughputs = {results.WRITE: written, results.READ: read, results.DUPLICATE: again}
    return {series: length / answer["seconds"] / MB for series, answer in throughputs.items()}


def recovery(side, settings, round_no):
    """A4: the file system ends in the middle of a sequential write, and is mounted again.

    What was synced before must be there then, and a check of the whole must find nothing.
    """
    if not side.recovers():
        return {}
    kept, lost = (seed_of(round_no, use=use) for use in (13, 14))
    side.client("write", side.path("kept"), bytes=KEPT_BYTES, seed=kept)
    for _ in range(CRASH_TRIES):
        if crash_while_writing(side, settings.crash_bytes, lost):
            break
        side.mount()
        side.remove(CRASHED)
    else:
        raise BenchError(f"experiment A4: {CRASH_TRIES} times the writer was done before the crash; take a larger file")
    side.forget_device()
    side.place.ballast.fill()
    started = time.perf_counter()
    seconds = timed(side.mount)
    # A pool serves before its filter is complete, and before it has made sure that no other host has it.
    side.settle()
    settled = time.perf_counter() - started
    side.client("read", side.path("kept"), bytes=KEPT_BYTES, seed=kept)
    side.unmount()
    side.check()
    return {results.RECOVERY: seconds, results.RECOVERED: settled}


def crash_while_writing(side, length, seed):
    """Ends the file system when half of a file of `length` bytes has been written, and takes its mount away.

    Returns whether the writer was still at it.
    """
    path = side.path(CRASHED)
    command = [side.place.python, "-B", CLIENT, "write", path, f"--bytes={length}", f"--seed={seed}"]
    null, before = subprocess.DEVNULL, system.before_program(user=side.user)
    writer = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, preexec_fn=before)
    try:
        wait_for_length(path, length // 2, writer)
        side.crash()
        interrupted = writer.wait(CRASH_SECONDS_MAX) != 0
    except subprocess.TimeoutExpired:
        raise BenchError("experiment A4: the writer does not notice that its file system is gone") from None
    finally:
        # Before its mount goes: a busy ext4 cannot be unmounted.
        system.end(writer)
    side.take_away_crashed()
    return interrupted


def wait_for_length(path, length, writer):
    deadline = time.monotonic() + CRASH_SECONDS_MAX
    while not path.exists() or path.stat().st_size < length:
        if time.monotonic() > deadline:
            raise BenchError("experiment A4: the writer does not get to the middle of its file")
        if writer.poll() not in (None, 0):
            raise BenchError("experiment A4: the writer failed before the crash")
        time.sleep(CRASH_POLL_SECONDS)


def images(side, settings, round_no, paths):
    """B2 and B3 (Figures 11 and 12): images are inserted one after another, then fetched, one to four at once."""
    values = {}
    for number, image in enumerate(paths):
        read_through(image)
        side.place.ballast.fill()
        name = f"image-{number + 1}"
        seconds = side.insert(image, name)
        synced, _ = side.client("sync", side.path(name))
        values[results.image_series(number)] = seconds + synced["seconds"]
        side.settle()
    values[results.INSERT] = sum(values.values()) / len(paths)
    stored = [side.path(f"image-{number + 1}") for number in range(len(paths))]
    wanted = [image.stat().st_size for image in paths]
    for count in range(1, min(len(paths), PAPER_IMAGES_MAX) + 1):
        side.make_cold()
        answer = json.loads(system.run(side.place.python, "-B", FETCH, *stored[:count], user=side.user).text)
        if answer["bytes"] != sum(wanted[:count]):
            raise BenchError(f"experiment B3: {answer['bytes']} bytes were fetched of {sum(wanted[:count])}")
        values[results.fetch_series(count)] = answer["seconds"]
    if round_no == 0:
        # Outside all measurements; once is enough, later rounds do the same.
        for image, name in zip(paths, stored):
            system.run("cmp", image, name)
    return values
