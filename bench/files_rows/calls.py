"""A whole pass beside the bare calls that share the same runs."""

from bisect import bisect_right
from dataclasses import dataclass

from lib import system
from lib.measure import Cost, Sample, Work
from lib.rows.beside import ONEFOLD, OTHER, BesideLine
from lib.system import BenchError
from share_rows.ground import BTRFS, NAMES
from share_rows.maps import extents_of

from .row import MIB, FilesRow, share
from .sets import made_images

BLOCK_BYTES = 4096


@dataclass(frozen=True)
class SharedRun:
    """Consecutive bytes of a target that lie since a pass where those of a source lay before."""

    source: str
    source_offset: int
    target: str
    target_offset: int
    length: int

    def goes_on_with(self, other):
        """Tells whether another run follows this one in both files."""
        ends = (self.source, self.source_offset + self.length, self.target, self.target_offset + self.length)
        return ends == (other.source, other.source_offset, other.target, other.target_offset)


class CallsRow(FilesRow):
    """The runs are read from the maps before and after a pass, and shared once more on equal copies."""

    share_of_time = 2.0

    def __init__(self, settings, kind):
        self.kind, self.name = kind, f"calls-{kind}"
        super().__init__(settings)

    def make_lines(self, settings):
        title = f"`share files` on {NAMES[self.kind]}, the whole of it, cold: what it shares, a second"
        beside = "the bare calls on the same runs"
        yield BesideLine(self.name, title, "MB/s", goal="0.8x / 0.95x", beside=beside)

    def measure(self, bench, settings, round_no):
        images = settings.images or made_images(bench, settings)
        length = max(settings.device_bytes, int(system.stored_bytes(*images) * 1.5))
        ground = self._copied(bench, images, length)
        before = maps_of(ground)
        ground.make_cold()
        # What a pass copies on Btrfs, so that whole extents come free, is no call.
        words = ("--rewrite", "0") if self.kind == BTRFS else ()
        done = share(bench.programs, "files", ground.mountpoint, *words)
        runs = shared_runs(before, maps_of(ground))
        moved = sum(run.length for run in runs)
        if not 0.9 * done.shared_bytes <= moved <= 1.1 * done.shared_bytes:
            raise BenchError(f"{self.name}: {moved} bytes lie elsewhere, and {done.shared_bytes} were shared")
        rate = done.shared_bytes / 1e6 / done.told["seconds"]
        work = Work.moved(done.shared_bytes)
        yield self.name, ONEFOLD, Sample(rate, Cost(done.cpu_seconds), work, more=done.told)
        ground = self._copied(bench, images, length)
        ground.make_cold()
        seconds, calls, cpu_seconds = self._call(ground, runs)
        more = {"calls": calls, "runs": len(runs)}
        yield self.name, OTHER, Sample(moved / 1e6 / seconds, Cost(cpu_seconds), Work.moved(moved), more=more)

    def _copied(self, bench, images, length):
        ground = bench.ground(self.kind, length // MIB * MIB)
        for image in images:
            ground.copy(image)
        ground.free_bytes()
        return ground

    @staticmethod
    def _call(ground, runs):
        """Shares runs; returns the seconds, the number of calls, and the processor time that they took."""
        pairs = {}
        for run in runs:
            places = (run.source_offset, run.target_offset, run.length)
            pairs.setdefault((run.source, run.target), []).append([place // BLOCK_BYTES for place in places])
        seconds = calls = cpu_seconds = 0
        for (source, target), places in sorted(pairs.items()):
            told, cost = ground.calls(source, target, places)
            seconds += told["seconds"]
            calls += told["calls"]
            cpu_seconds += cost.client_seconds
        return seconds, calls, cpu_seconds


def maps_of(ground):
    """Returns the extents of all images, by name."""
    return {path.name: extents_of(path) for path in ground.images()}


def shared_runs(before, after):
    """Returns the runs of which a pass has changed the place to one that another file, or another part of the same one,
    had before it; in the order of their targets.
    """
    owners = sorted((one.place, one.length, one.offset, name) for name, extents in before.items() for one in extents)
    starts = [owner[0] for owner in owners]
    runs = []
    for target in sorted(after):
        offsets = [one.offset for one in before[target]]
        for extent in after[target]:
            at, end = extent.offset, extent.offset + extent.length
            while at < end:
                place = extent.place + at - extent.offset
                number = bisect_right(offsets, at) - 1
                former = before[target][number] if number >= 0 else None
                part_end, is_same = end, False
                if former and at < former.offset + former.length:
                    part_end = min(part_end, former.offset + former.length)
                    is_same = former.place + at - former.offset == place
                elif number + 1 < len(offsets):
                    part_end = min(part_end, offsets[number + 1])
                owner = owners[max(0, bisect_right(starts, place) - 1)]
                if is_same:
                    at = part_end
                    continue
                owner_place, owner_length, owner_offset, source = owner
                if not owner_place <= place < owner_place + owner_length:
                    # A copy of its own: nobody lay there.
                    at = min(part_end, at + BLOCK_BYTES)
                    continue
                part_end = min(part_end, at + owner_place + owner_length - place)
                append(runs, SharedRun(source, owner_offset + place - owner_place, target, at, part_end - at))
                at = part_end
    return runs


def append(runs, run):
    """Adds a run, or has the last one go on with it."""
    if runs and runs[-1].goes_on_with(run):
        last = runs.pop()
        run = SharedRun(last.source, last.source_offset, last.target, last.target_offset, last.length + run.length)
    runs.append(run)
