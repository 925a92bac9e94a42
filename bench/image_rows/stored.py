"""What sets of images take once they are stored, what that costs, and what is saved."""

import json
import shutil

from guest_rows.programs import warm
from lib import system
from lib.measure import Cost, Sample, Work
from lib.rows.beside import ONEFOLD, alternating
from lib.runner import say
from lib.system import BenchError

from .images import DERIVED, MIB, missing_of
from .line import ImageLine
from .row import ImageRow

# The leanest peer that deduplicates, and the least work that compresses anything.
LEAN, LEANEST = ("borg", "borg-fixed"), ("zstd-1",)


class SetRow(ImageRow):
    """A whole set, stored image by image on each side."""

    share_of_time = 4.0
    # The bytes are the same in each round.
    rounds_max = 1

    def __init__(self, settings, name, corpus_set, title, goals, is_equal, has_cpu=False):
        self.name, self.corpus_set, self.is_equal = name, corpus_set, is_equal
        # A quick run has time for one set.
        self.in_quick = corpus_set == DERIVED and not is_equal
        self._title, self._goals, self._has_cpu = title, goals, has_cpu
        super().__init__(settings)

    def make_lines(self, settings):
        bound, aim = self._goals
        title = f"bytes stored with all metadata, {self._title}"
        yield smaller(self.name, title, "MiB", bound, aim, beside="smallest peer")
        if self._has_cpu:
            title = "processor time to store them"
            yield smaller(f"{self.name}-cpu-borg", title, "s", 0.8, 0.4, beside="borg, the leaner of two")
            yield smaller(f"{self.name}-cpu-zstd", title, "s", 0.6, 0.35, beside="`zstd -1`")

    def missing(self, settings):
        return missing_of(self.corpus_set, settings)

    def measure(self, images, settings, round_no):
        paths = images.equal(self.corpus_set) if self.is_equal else images.of(self.corpus_set)
        for side in alternating(round_no, *images.sides()):
            say(f"  {side.name}")
            folder = images.new_folder("set")
            side.create(folder)
            cpu_seconds, seconds = 0.0, []
            try:
                for image in paths:
                    warm(image)
                    took = side.store(folder, image, image.stem)
                    cpu_seconds += took.cpu_seconds
                    seconds.append(took.seconds)
            except BenchError as error:
                if side.name == ONEFOLD:
                    raise
                # One that cannot store one of the images has no figure for the set.
                say(f"  {side.name} left out: {error}")
                continue
            stored, on_disk = side.stored_bytes(folder)
            more = {"on_disk_bytes": on_disk, "seconds": seconds, "cpu_seconds": cpu_seconds}
            cost, work = Cost(cpu_seconds), Work.moved(system.stored_bytes(*paths))
            yield self.name, side.name, Sample(stored / MIB, cost, work, more)
            if self._has_cpu:
                yield from self._cpu_lines(side.name, cpu_seconds)
            shutil.rmtree(folder)

    def _cpu_lines(self, side, cpu_seconds):
        for key, peers in (("borg", LEAN), ("zstd", LEANEST)):
            if side in (ONEFOLD, *peers):
                yield f"{self.name}-cpu-{key}", side, Sample(cpu_seconds)


class SavingsRow(ImageRow):
    """What units save of the allocated bytes of a set, beside blocks of 4 KiB wherever they lie."""

    sides = (ONEFOLD, "blocks")
    rounds_max = 1
    in_quick = False

    def __init__(self, settings, corpus_set, title, bound, aim):
        self.name, self.corpus_set = f"savings-{corpus_set}", corpus_set
        self._title, self._goals = title, (bound, aim)
        super().__init__(settings)

    def make_lines(self, settings):
        title = f"saved of the allocated bytes by sharing units, {self._title}"
        bound, aim = self._goals
        yield ImageLine(self.name, title, "%", bound=bound, aim=aim, beside="blocks of 4 KiB, partitions aligned")

    def missing(self, settings):
        return missing_of(self.corpus_set, settings)

    def measure(self, images, settings, round_no):
        captured = images.captured(self.corpus_set)
        data, new = captured.sum("data_bytes"), captured.sum("new_bytes")
        yield self.name, ONEFOLD, Sample(100 * (data - new) / data, more={"data_bytes": data, "new_bytes": new})
        command = (images.programs.onefold, "analyze", "--quiet", "--json", *images.equal(self.corpus_set))
        told = json.loads(system.run(*command).text)
        # Blocks of a partition that is not aligned share none with others unless they are taken from its own start.
        blocks = told["realignment"]
        saved = blocks["nonzero_bytes"] - blocks["distinct_bytes"]
        yield self.name, "blocks", Sample(100 * saved / blocks["nonzero_bytes"], more=blocks)


class MetadataRow(ImageRow):
    """What an archive has besides compressed units."""

    name = "metadata"
    sides = (ONEFOLD,)
    rounds_max = 1

    def make_lines(self, settings):
        what = "metadata (manifests, headers, tables, index, ledger) of the allocated bytes"
        yield smaller("metadata", f"{what}, the derived set", "%", 1, 0.5)
        yield smaller("metadata-derived", "the same, added by its last image beside its new units", "%", 0.1, 0.05)

    def missing(self, settings):
        return missing_of(DERIVED, settings)

    def measure(self, images, settings, round_no):
        captured = images.captured(DERIVED)
        data = captured.sum("data_bytes")
        metadata = captured.metadata_bytes
        yield "metadata", ONEFOLD, Sample(100 * metadata / data, more={"bytes": metadata, "data_bytes": data})
        last = captured.added[-1]
        added = last.total_bytes - last.units_bytes
        new_units = last.told["new_units"]
        more = {"bytes": added, "data_bytes": last.told["data_bytes"], "new_units": new_units}
        yield "metadata-derived", ONEFOLD, Sample(100 * added / last.told["data_bytes"], more=more)


def smaller(key, title, unit, bound, aim, **more):
    """Returns a line whose lower values are the better ones."""
    return ImageLine(key, title, unit, higher_is_better=False, bound=bound, aim=aim, **more)
