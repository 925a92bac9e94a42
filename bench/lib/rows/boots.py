"""Virtual machines that start from clones in a pool, beside ones that start from full copies on ext4."""

from .. import boot, system
from ..cgroup import LimitedMemory, why_missing
from ..measure import Line, Sample
from .row import MB, Row, seed_of

IMAGE = "image"
GUEST = "guest"
SOURCE = "boot.image"

# Memory for all guests' caches and the daemon: that part of what their boots read, so that copies do not fit.
MEMORY_PART = 3
MEMORY_BYTES_MIN = 192 << 20
DAEMON_BYTES_MIN = 64 << 20


class RealBootRow(Row):
    """A guest under QEMU until its console says that it is up: mostly the processor's time, once on each side."""

    name = "boot"
    sides = ("pool", "ext4")
    share_of_time = 1.5
    in_quick = False
    lines = (
        Line("boot", "boot of one guest under QEMU, until it is up", "s", higher_is_better=False, goal="report"),
        Line("boot-read", "what it reads from the disk", "MB", higher_is_better=False, goal="report"),
    )
    rounds_max = 1

    def missing(self, settings):
        return boot.why_not(settings.image) or why_too_large(settings)

    def prepare(self, side, settings):
        bring_in(side, settings.image, 1)

    def measure(self, side, settings, round_no):
        side.make_cold()
        before = side.disk_read_bytes()
        seconds = boot.boot(side.path(f"{GUEST}-1"), user=side.user)
        return {"boot": Sample(seconds), "boot-read": Sample((side.disk_read_bytes() - before) / MB)}

    def finish(self, side, settings):
        side.remove(IMAGE, f"{GUEST}-1")


class BootReplayRow(Row):
    """The reads of one recorded boot from many guests at once, each in its order, one at a time; then the same again
    after each guest's own writes. On the pool the guests are clones of an image, on ext4 full copies of it.

    What a boot never touches is left out of the image on both sides, so that the copies fit the disk.
    """

    sides = ("pool", "ext4")
    share_of_time = 1.5
    in_quick = False

    def __init__(self, name, direct):
        self.name = name
        self.direct = {"direct": True} if direct else {}
        how = "O_DIRECT" if direct else "buffered"
        goal = "1x / 2x"
        self.lines = (
            Line(f"{name}-one", f"reads of one guest's boot, cold, {how}", "s", higher_is_better=False, goal=goal),
            Line(
                f"{name}-many", f"reads of twenty guests' boots at once, cold, {how}", "s", higher_is_better=False,
                goal=goal,
            ),
            Line(f"{name}-many-read", "what they read from the disk", "MB", higher_is_better=False, goal=goal),
            Line(
                f"{name}-again", f"the same after each guest's own writes, cold, {how}", "s", higher_is_better=False,
                goal=goal,
            ),
            Line(f"{name}-again-read", "what they read from the disk", "MB", higher_is_better=False, goal=goal),
        )  # fmt: skip

    def missing(self, settings):
        return boot.why_not(settings.image) or why_missing("memory")

    def prepare(self, side, settings):
        record, self._record_file = boot.record_of(settings.image, settings.records)
        source = side.device.with_name(SOURCE)
        try:
            boot.copy_touched(settings.image, record, source)
            bring_in(side, source, settings.guests)
        finally:
            source.unlink(missing_ok=True)
        limit = max(record.read_bytes() * settings.guests // MEMORY_PART, MEMORY_BYTES_MIN)
        group = LimitedMemory(side.group_name(), limit)
        side.remount(group, memory=max(limit // 2, DAEMON_BYTES_MIN))

    def measure(self, side, settings, round_no):
        if side.name == "pool" and round_no > 0:
            # As they were before the writes; copies on ext4 lie where they lay.
            side.remove(*guests(settings.guests))
            clones(side, settings.guests)
        samples = {f"{self.name}-one": self._replay(side, 1)[0]}
        for when in ("many", "again"):
            if when == "again":
                side.client(
                    "replay-writes", side.path(GUEST), count=settings.guests, record=self._record_file,
                    seed=seed_of(round_no, use=19), **self.direct,
                )  # fmt: skip
            samples[f"{self.name}-{when}"], samples[f"{self.name}-{when}-read"] = self._replay(side, settings.guests)
        return samples

    def _replay(self, side, count):
        """Returns samples of the time and of what was read from the disk."""
        side.make_cold()
        before = side.disk_read_bytes()
        answer, cost = side.client(
            "replay-reads", side.path(GUEST), count=count, record=self._record_file, **self.direct
        )
        moved = {"asked_bytes": answer["bytes"]}
        return Sample(answer["seconds"], cost, more=moved), Sample((side.disk_read_bytes() - before) / MB)

    def finish(self, side, settings):
        side.remount()
        side.remove(IMAGE, *guests(settings.guests))


def guests(count):
    return [f"{GUEST}-{number}" for number in range(1, count + 1)]


def bring_in(side, image, count):
    """Makes the guests' disks from an image outside: clones of it where the file system has them, or full copies."""
    if side.name == "pool":
        side.command(
            side.onefold, "--quiet", "pool", "import", side.mountpoint, image, "--format", "raw", "--to", IMAGE
        )
        clones(side, count)
        return
    for guest in guests(count):
        side.command("cp", "--sparse=always", image, side.path(guest))
    side.settle()


def clones(side, count):
    side.command(side.onefold, "--quiet", "pool", "clone", side.mountpoint, IMAGE, f"{GUEST}-%d", "--count", str(count))
    side.settle()


def why_too_large(settings):
    """Returns why a copy of the image does not fit on a disk, None where it does."""
    stored_bytes = system.stored_bytes(settings.image)
    return None if stored_bytes < settings.device_bytes * 0.9 else f"{settings.image.name} does not fit the disks"
