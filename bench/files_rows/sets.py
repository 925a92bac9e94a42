"""What `share files` frees of sets of the corpus, beside `share run`."""

import os
from pathlib import Path

from guest_rows import made
from lib import corpus, system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, alternating, lower
from share_rows.ground import XFS

from .row import MIB, FilesRow, share

# The sets, and what is wanted of what `share run` frees.
SETS = {"fbs": "0.9x / 0.95x", "vdi": "0.8x / 0.9x", "distros": "0.6x / 0.8x", "ntfs": "report"}
# A file system has records, and its files grow by them.
DISK_PART = 1.2
DISK_BYTES_MIN = 512 * MIB


class SetRow(FilesRow):
    """Both verbs on copies of the images, cold."""

    share_of_time = 3.0

    def __init__(self, settings, corpus_set, goal):
        self.corpus_set, self._goal = corpus_set, goal
        self.name = f"set-{corpus_set}"
        super().__init__(settings)

    def make_lines(self, settings):
        title = f"more free after `share files` on the set `{self.corpus_set}`, by df"
        yield BesideLine(f"{self.name}-freed", title, "MiB", goal=self._goal, beside="`share run`")
        yield lower(f"{self.name}-time", "its time, cold", "s", goal="report", beside="`share run`")

    def missing(self, settings):
        if settings.mode != "tiny":
            absent = [path.stem for path in images_of(self.corpus_set) if not path.is_file()]
            if absent:
                return f"{', '.join(absent)} of the set are not built: run `make corpus SETS={self.corpus_set}`"
        return super().missing(settings)

    def measure(self, bench, settings, round_no):
        images = images_of(self.corpus_set) if settings.mode != "tiny" else made_images(bench, settings)
        stored = system.stored_bytes(*images)
        length = int(max(DISK_BYTES_MIN, stored * DISK_PART)) // MIB * MIB
        for side, verb in alternating(round_no, (ONEFOLD, "files"), (OTHER, "run")):
            ground = bench.ground(XFS, length)
            for image in images:
                ground.copy(image)
            before = ground.free_bytes()
            ground.make_cold()
            done = share(bench.programs, verb, ground.mountpoint)
            yield f"{self.name}-freed", side, Sample((ground.free_bytes() - before) / MIB, more=done.told)
            yield f"{self.name}-time", side, Sample(done.seconds)


def images_of(corpus_set):
    """Returns where the images of a set lie, or would."""
    folder = os.environ.get("ONEFOLD_IMAGES")
    paths = corpus.images_of(corpus_set)
    return [Path(folder) / path.name for path in paths] if folder else paths


def made_images(bench, settings):
    """Makes two images with the same packages."""
    folder = bench.place.folder
    images = [folder / f"made-{number}.raw" for number in range(2)]
    for image in images:
        if not image.exists():
            made.image(image, folder / "tree", settings)
    return images
