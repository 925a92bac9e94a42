"""What interruptions of a pass cost: all of its runs together, beside one uninterrupted run on an equal file system."""

import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from lib import system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, alternating, lower
from lib.rows.row import seed_of
from lib.system import BenchError

from .batches import IN_SMALL_BATCHES, SMALL_BATCHES
from .ground import told_quietly
from .maps import Layout
from .row import ShareRow
from .sets import write_images

MIB = 1 << 20
CUTS = 8
# An interrupted run empties the slots of its batch before it ends.
END_SECONDS_MAX = 60


@dataclass
class Part:
    """One `share run`, whether it was cut or not."""

    seconds: float
    # Bytes that its read calls returned, its own records among them.
    read_bytes: int
    # Bytes that were read from the disk meanwhile.
    disk_bytes: int
    # Its report; None where it was cut.
    told: dict | None


@dataclass
class State:
    """Result of a pass on the file system."""

    shared_bytes: int
    # Bytes of the slots that are filled.
    arena_bytes: int

    @classmethod
    def of(cls, ground):
        return cls(Layout.of(ground.images()).shared_bytes, Layout.of(ground.arena_files()).mapped_bytes)


class CutRow(ShareRow):
    """Each run after a cut begins at once, with the caches as they are: a run plans anew, and goes on where it was."""

    base = "cut"
    share_of_time = 2.0
    # Equal passes differ by a tenth, as much as interruptions may cost.
    rounds_max = 6
    # The time between two interruptions.
    cut_seconds = None

    def make_lines(self, settings):
        what = f"{settings.cut_images} made-up images on {self.where}"
        title = f"pass over {what} in {SMALL_BATCHES}, interrupted {CUTS} times and resumed: all of its runs together"
        beside = "uninterrupted pass"
        yield lower(f"{self.name}-time", title, "s", goal="0.909x", beside=beside)
        yield lower(f"{self.name}-read", "what they read of files", "MiB", goal="0.909x", beside=beside)

    def measure(self, ground, settings, round_no):
        seed = seed_of(round_no, use=91)
        if self.cut_seconds is None:
            # This round does not count. The first one after a pause may find a disk that has saved up bandwidth.
            make(ground, settings, seed)
            self.cut_seconds = run_for(ground, None).seconds / (CUTS + 1)
            ground.close()
        states, runs = {}, {}
        # The side that goes first changes, in case going first matters.
        for side in alternating(round_no, OTHER, ONEFOLD):
            make(ground, settings, seed)
            runs[side] = [run_for(ground, None)] if side == OTHER else cut(ground, self.cut_seconds)
            states[side] = State.of(ground)
            ground.close()
        self._ensure_comparable(runs[ONEFOLD], states[ONEFOLD], states[OTHER], settings)
        for side, done in runs.items():
            more = {"runs": [vars(run) for run in done]}
            yield f"{self.name}-time", side, Sample(sum(run.seconds for run in done), more=more)
            yield f"{self.name}-read", side, Sample(sum(run.read_bytes for run in done) / MIB)

    def _ensure_comparable(self, parts, found, wanted, settings):
        """Raises BenchError where the pass was cut less often, or has another result than an uninterrupted one."""
        # A tiny pass has hardly begun when it is interrupted.
        if len(parts) != CUTS + 1 and settings.mode != "tiny":
            raise BenchError(f"{self.name}: the pass was complete after {len(parts) - 1} of {CUTS} interruptions")
        if found.shared_bytes != wanted.shared_bytes:
            raise BenchError(f"{self.name}: {found.shared_bytes} bytes are shared, not {wanted.shared_bytes}")
        if found.arena_bytes > wanted.arena_bytes:
            raise BenchError(f"{self.name}: the arena holds {found.arena_bytes} bytes, not {wanted.arena_bytes}")


def make(ground, settings, seed):
    """Makes a file system with the images, in no cache."""
    ground.open()
    write_images(ground, seed, settings.cut_images, settings.cut_image_bytes)
    ground.make_cold()


def cut(ground, seconds):
    """Shares all that is equal in runs, and interrupts each but the last after some seconds; returns the runs."""
    parts = []
    while not parts or parts[-1].told is None:
        parts.append(run_for(ground, seconds if len(parts) < CUTS else None))
    return parts


def run_for(ground, seconds):
    """Runs `share run`, and interrupts it after some seconds, where they are given; returns a Part.

    Raises BenchError where it fails, or could not share a file.
    """
    words = list(map(str, ground.command(*IN_SMALL_BATCHES)))
    disk_before = system.disk_read_bytes(ground.loop)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        started = time.perf_counter()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            wait_until_ended(process, seconds)
            took = time.perf_counter() - started
            read_bytes = system.read_by(process.pid)
            process.wait()
        except BaseException:
            system.end(process)
            raise
        text, why = (told_in(file) for file in (out, err))
    disk_bytes = system.disk_read_bytes(ground.loop) - disk_before
    told = None
    if process.returncode == 0:
        told = told_quietly(text)
    elif seconds is None or not was_interrupted(process.returncode, text + why):
        raise BenchError(f"`{' '.join(words)}` failed with {process.returncode}: {(why or text).strip()}")
    return Part(took, read_bytes, disk_bytes, told)


def wait_until_ended(process, seconds):
    """Waits for the end of a program, and interrupts it after some seconds, where they are given.

    The program stays a zombie, of which the kernel still tells what it read.
    """
    watched = os.pidfd_open(process.pid)
    try:
        ended = select.poll()
        ended.register(watched, select.POLLIN)
        if seconds is not None:
            if ended.poll(1000 * seconds):
                return
            # Popen would collect a program that has just ended.
            signal.pidfd_send_signal(watched, signal.SIGINT)
        most = END_SECONDS_MAX if seconds is not None else system.COMMAND_SECONDS_MAX
        if not ended.poll(1000 * most):
            raise BenchError(f"a pass did not end within {most} s")
    finally:
        os.close(watched)


def was_interrupted(code, text):
    """Tells whether a run ended because it was interrupted; one that has hardly begun is ended by the signal itself."""
    return code == -signal.SIGINT or (code == 130 and "interrupted" in text)


def told_in(file):
    file.seek(0)
    return file.read()
