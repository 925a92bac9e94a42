"""What every row about guest files is, and the bench that measures them."""

import json
from dataclasses import dataclass

from lib import device, system
from lib.data import CHUNK_BYTES
from lib.rows.beside import BesideBench, BesideRow
from share_rows.ground import Ground

MIB = 1 << 20
# Nobody waits longer for one pass.
SECONDS_MAX = 3600
# Members of a pass's trouble that name images.
TROUBLES = ("failed", "refused", "busy")


@dataclass(frozen=True)
class Pass:
    """One pass: what it says in JSON, and what it took."""

    told: dict
    seconds: float
    cpu_seconds: float

    @property
    def shared_bytes(self):
        """Returns the bytes that share since this pass."""
        return self.told["shared"]["now_bytes"]


class FilesRow(BesideRow):
    """A row that shares files of guests, on disks that it makes before each turn."""

    needed = ("mkfs.xfs", "mke2fs")


class FilesBench(BesideBench):
    """A folder of disks, on which each row makes what it needs."""

    def __init__(self, bench):
        # Of `fbs_rows`: it mounts guests, and has the set of machines.
        self.guests = bench
        self.place, self.programs, self.settings = bench.place, bench.programs, bench.settings
        self._ground = None

    def ground(self, kind, length):
        """Returns an empty file system of a kind, mounted, on a disk of at least so many bytes. A former one goes."""
        self._close_ground()
        ground = Ground(self.place, self.programs, kind)
        if ground.device.exists() and ground.device.stat().st_size < length:
            ground.device.unlink()
        if not ground.device.exists():
            device.allocate(ground.device, -(-length // CHUNK_BYTES) * CHUNK_BYTES)
        self._ground = ground
        ground.open()
        return ground

    def _close_ground(self):
        if self._ground is not None:
            self._ground.close()
            self._ground = None

    def open(self):
        self.place.ballast.fill()

    def prepare(self, row):
        pass

    def ground_of(self, row):
        return self

    def finish(self, row):
        self.close()

    def close(self):
        self.guests.close()
        self._close_ground()

    start_anew = close


def share(programs, verb, folder, *words):
    """Makes one pass of `share`; returns a Pass. Raises BenchError where an image was not examined or not shared."""
    command = (programs.onefold, "share", verb, "--quiet", "--json", *words, folder)
    finished = system.run(*command, timeout=SECONDS_MAX)
    told = json.loads(finished.text)
    left = left_out(told)
    if left:
        raise system.BenchError(f"`share {verb}` left out {left}")
    return Pass(told, finished.seconds, finished.cpu_seconds)


def left_out(told):
    """Returns the images that a pass could not examine or share, or that were busy. A pass has done less work then."""
    # `share run --files` tells of its files apart.
    parts = [told, *([told["files"]] if told.get("files") else [])]
    troubles = [part["trouble"] for part in parts]
    failed = [image for part in parts for image in part.get("failed", [])]
    return failed + [image for trouble in troubles for kind in TROUBLES for image in trouble[kind]]
