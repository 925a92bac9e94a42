"""Copies of a whole image on the same file system."""

from ..measure import Line, Sample
from .row import Row, seed_of

IMAGE = "image"
CLONE = "clone"


class CloneRow(Row):
    """`onefold pool clone` beside `cp` on ext4, which has no way but to copy; then the copy's first changed block.

    The time of the command holds the start of its process. Neither side is asked to sync the copy itself.
    """

    name = "clone"
    lines = (
        Line("clone", "copy of an image: clone / full copy (`cp`)", "ms", higher_is_better=False, goal="50 ms / 5 ms"),
        Line(
            "clone-first-write", "first 4 KiB write into the copy, buffered", "ms", higher_is_better=False,
            goal="1 ms / 0.2 ms",
        ),
    )  # fmt: skip

    def prepare(self, side, settings):
        side.client("write", side.path(IMAGE), bytes=settings.file_bytes, seed=seed_of(0, use=6))

    def measure(self, side, settings, round_no):
        if side.name == "pool":
            words = (side.onefold, "--quiet", "pool", "clone", side.mountpoint, IMAGE, CLONE)
        else:
            words = ("cp", "--reflink=auto", side.path(IMAGE), side.path(CLONE))
        finished, cost = side.command(*words)
        side.settle()
        answer, poke_cost = side.client("poke", side.path(CLONE), seed=seed_of(round_no, use=7))
        side.remove(CLONE)
        return {
            "clone": Sample(finished.seconds * 1000, cost),
            "clone-first-write": Sample(
                answer["seconds"] * 1000, poke_cost, more={"fsync_ms": answer["sync_seconds"] * 1000}
            ),
        }

    def finish(self, side, settings):
        side.remove(IMAGE)
