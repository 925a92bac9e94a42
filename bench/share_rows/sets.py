"""A whole pass over a set of images with cold caches, beside duperemove; and the next pass over the same images."""

import json
import shutil
import tempfile
from pathlib import Path

from lib import system
from lib.data import BLOCK_BYTES, CHUNK_BYTES, ImageData
from lib.measure import Sample
from lib.rows.row import seed_of
from lib.system import BenchError

from .ground import XFS
from .row import ONEFOLD, OTHER, ShareLine, ShareRow, lower

MIB = 1 << 20
# Its options, by a short name: its usual unit and the smallest, each with parts of extents, without which it frees less.
MODES = {
    "128k": ("-b", "128k", "--dedupe-options=partial"),
    "4k": ("-b", "4k", "--dedupe-options=partial"),
}
# Whatever it can use: hashes in memory, and both cores.
ALWAYS = ("-d", "-r", "-q", "--io-threads=2", "--cpu-threads=2")
# Where its hashes are kept, so that no disk is waited for.
MEMORY = Path("/dev/shm")


class SetRow(ShareRow):
    """Each program has the images copied anew; zero blocks are holes in all copies."""

    base = "set"
    share_of_time = 3.0

    def make_lines(self, settings):
        many = f"{len(settings.images)} real images" if settings.images else f"{settings.images_made} made-up images"
        for mode, options in MODES.items():
            beside = f"duperemove {' '.join(options)}"
            if mode == "128k":
                time = f"whole pass over {many} on {self.where}, cold caches"
                cpu, freed = "its processor time", "more free afterwards, by df"
            else:
                time = f"the same pass on {self.where}, beside duperemove's smallest unit"
                cpu, freed = "its processor time, beside that", "more free afterwards, beside that"
            yield lower(f"{self.name}-time-{mode}", time, "s", goal="5x", beside=beside)
            yield lower(f"{self.name}-cpu-{mode}", cpu, "s", goal="5x", beside=beside)
            yield ShareLine(f"{self.name}-freed-{mode}", freed, "MiB", goal="report", beside=beside)
            title = "that is, for each second of processor time"
            yield ShareLine(f"{self.name}-gain-{mode}", title, "MiB/s", goal="5x", beside=beside)
        aim = "0.99x" if self.kind == XFS else "report"
        title = f"more free afterwards on {self.where}, by df, and what `analyze` foretells"
        yield ShareLine(f"{self.name}-forecast", title, "MiB", goal=aim, beside="`analyze`")
        entry = "bytes of the index for each entry of it"
        yield lower(f"{self.name}-entry", entry, "B", goal="at most 23 B", paper="about 23 B")
        again = f"the next pass over the unchanged images on {self.where}, cold caches"
        yield lower(f"{self.name}-again", again, "s", goal="report", beside="the first pass")
        yield lower(f"{self.name}-again-read", "what it reads of them", "MiB", goal="report", beside="the first pass")

    def rounds(self, settings):
        return min(settings.rounds, 2)

    def missing(self, settings):
        if shutil.which("duperemove") is None:
            return "there is no duperemove"
        return super().missing(settings)

    def measure(self, ground, settings, round_no):
        yield from self._share(ground, settings, round_no)
        for mode, options in MODES.items():
            yield from self._duperemove(ground, settings, round_no, mode, options)

    def _share(self, ground, settings, round_no):
        self._copy(ground, settings, round_no)
        forecast = self._forecast(ground)
        before = ground.free_bytes()
        system.drop_caches()
        done = ground.share()
        freed = ground.free_bytes() - before
        for mode in MODES:
            yield f"{self.name}-time-{mode}", ONEFOLD, Sample(done.seconds, more=done.told)
            yield f"{self.name}-cpu-{mode}", ONEFOLD, Sample(done.cost.client_seconds)
            yield from self._freed(mode, ONEFOLD, freed, done.cost)
        yield f"{self.name}-forecast", ONEFOLD, Sample(freed / MIB, more={"state_bytes": ground.state_bytes()})
        yield f"{self.name}-forecast", OTHER, Sample(forecast / MIB)
        index = done.told["index"]
        yield f"{self.name}-entry", ONEFOLD, Sample(index["bytes"] / (index["unique"] + index["shared"]), more=index)
        yield f"{self.name}-again", OTHER, Sample(done.seconds)
        yield f"{self.name}-again-read", OTHER, Sample(done.told["scanned"]["read_bytes"] / MIB)
        system.drop_caches()
        again = ground.share()
        yield f"{self.name}-again", ONEFOLD, Sample(again.seconds, more=again.told)
        yield f"{self.name}-again-read", ONEFOLD, Sample(again.told["scanned"]["read_bytes"] / MIB)
        ground.close()

    def _duperemove(self, ground, settings, round_no, mode, options):
        self._copy(ground, settings, round_no)
        before = ground.free_bytes()
        system.drop_caches()
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            words = ("duperemove", *ALWAYS, f"--hashfile={folder}/hashes", *options, ground.mountpoint)
            finished, cost = ground.timed(*words, timeout=settings.other_seconds_max)
        freed = ground.free_bytes() - before
        yield f"{self.name}-time-{mode}", OTHER, Sample(finished.seconds)
        yield f"{self.name}-cpu-{mode}", OTHER, Sample(cost.client_seconds)
        yield from self._freed(mode, OTHER, freed, cost)
        ground.close()

    def _freed(self, mode, side, freed, cost):
        yield f"{self.name}-freed-{mode}", side, Sample(freed / MIB)
        # What its records take may be more than it freed.
        yield f"{self.name}-gain-{mode}", side, Sample(max(freed, 0) / MIB / cost.client_seconds)

    @staticmethod
    def _copy(ground, settings, round_no):
        ground.open()
        for image in settings.images:
            ground.copy(image)
        if not settings.images:
            chunks = settings.image_bytes // CHUNK_BYTES
            hole_bytes = ImageData.ZERO * ImageData.RUN_BLOCKS * BLOCK_BYTES
            for number in range(settings.images_made):
                data = ImageData(seed_of(round_no, use=33), number, chunks)
                ground.write(f"image-{number}.raw", data, settings.image_bytes, hole_bytes)

    @staticmethod
    def _forecast(ground):
        """Returns how many bytes `analyze` foretells."""
        images = sorted(ground.mountpoint.glob("*.raw"))
        text = system.run(ground.programs.onefold, "analyze", "--quiet", "--json", *images).text
        sizes = json.loads(text)["block_sizes"]
        found = [size["saved_bytes"] for size in sizes if size["block_bytes"] == BLOCK_BYTES]
        if not found:
            raise BenchError("`analyze` tells nothing of blocks of 4 KiB")
        return found[0]


def stored_bytes(settings):
    """Returns what the set takes of the disk."""
    if settings.images:
        return sum(image.stat().st_blocks * 512 for image in settings.images)
    return settings.images_made * settings.image_bytes
