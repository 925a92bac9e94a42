"""How fast blocks are shared, beside the kernel's calls on the same pairs with nothing around them."""

from array import array
import random

from lib.data import BLOCK_BYTES, CHUNK_BLOCKS, ShuffledData, UniqueData
from lib.measure import Sample, Work
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, lower
from lib.rows.row import MB, seed_of

from .row import ShareRow

SOURCE, TARGET = "a-source", "b-target"
ORDER_SEED = 7


class RateRow(ShareRow):
    """Two files of equal blocks, both in the page cache. Each side has them made anew."""

    # How the second file's blocks lie, in words.
    how = ""
    paper = ""
    # With one content for each block.
    paper_records = ""

    def make_lines(self, settings):
        what = f"sharing on {self.where}, {self.how}"
        yield BesideLine(self.name, what, "MB/s", goal="0.8x / 1.0x", beside="bare calls", paper=self.paper)
        title = "with putting the first places of all contents into the arena"
        yield BesideLine(f"{self.name}-arena", title, "MB/s", goal="report", beside="bare calls")
        title = "the whole pass, which also finds, indexes and remembers them"
        yield BesideLine(f"{self.name}-pass", title, "MB/s", goal="report", beside="bare calls")
        title = "what more the file system and Onefold's records take then, by df, of the blocks that are left"
        yield lower(f"{self.name}-records", title, "%", goal="report", paper=self.paper_records)

    def length(self, settings):
        raise NotImplementedError

    def data(self, settings, seed):
        """Returns the second file's."""
        raise NotImplementedError

    def pairs(self, settings):
        """Returns source, target and count of equal blocks, in the order of the targets."""
        raise NotImplementedError

    def measure(self, ground, settings, round_no):
        turns = [self._share, self._call]
        # The side that goes first changes, in case going first matters.
        for turn in turns if round_no % 2 == 0 else reversed(turns):
            ground.open()
            seed = seed_of(round_no, use=30)
            length = self.length(settings)
            ground.write(SOURCE, UniqueData(seed), length)
            ground.write(TARGET, self.data(settings, seed), length)
            ground.warm(SOURCE, TARGET)
            yield from turn(ground, settings, length)
            ground.close()

    def _share(self, ground, settings, length):
        before = ground.free_bytes()
        done = ground.share()
        taken = length - (ground.free_bytes() - before)
        yield f"{self.name}-records", ONEFOLD, Sample(100 * taken / length)
        ground.shared_or_raise(done.told, length, self.name)
        yield self.name, ONEFOLD, Sample(length / MB / done.seconds_of("share"), more=done.told)
        yield f"{self.name}-arena", ONEFOLD, Sample(length / MB / done.seconds_of("promote", "share"))
        rate = length / MB / done.told["seconds"]
        yield f"{self.name}-pass", ONEFOLD, Sample(rate, done.cost, Work.moved(length))

    def _call(self, ground, settings, length):
        told, cost = ground.calls(SOURCE, TARGET, self.pairs(settings))
        rate = told["bytes"] / MB / told["seconds"]
        yield self.name, OTHER, Sample(rate, more=told)
        yield f"{self.name}-arena", OTHER, Sample(rate)
        yield f"{self.name}-pass", OTHER, Sample(rate, cost, Work.moved(length))


class ShuffledRow(RateRow):
    """The worst case."""

    base = "shuffled"
    how = "all blocks equal, single ones in shuffled order"
    paper = "2.6 MB/s"
    paper_records = "1.1 %"

    def length(self, settings):
        return settings.shuffled_bytes

    def data(self, settings, seed):
        return ShuffledData([seed], settings.shuffled_bytes // BLOCK_BYTES, 1, ORDER_SEED)

    def pairs(self, settings):
        return [(source, target, 1) for target, source in enumerate(self._order(settings))]

    @staticmethod
    def _order(settings):
        # As ShuffledData has it.
        order = array("L", range(settings.shuffled_bytes // BLOCK_BYTES))
        random.Random(ORDER_SEED).shuffle(order)
        return order


class CopyRow(RateRow):
    """The best case."""

    base = "copy"
    how = "all blocks equal, in one run"

    def length(self, settings):
        return settings.runs_bytes

    def data(self, settings, seed):
        return UniqueData(seed)

    def pairs(self, settings):
        return [(0, 0, settings.runs_bytes // BLOCK_BYTES)]


class InterleavedData:
    """Blocks of one stream, each followed by one of another."""

    def __init__(self, seed, other_seed):
        self._streams = [UniqueData(seed), UniqueData(other_seed)]
        self._bytes = bytearray(CHUNK_BLOCKS * BLOCK_BYTES)

    def chunk(self, index):
        """Returns chunk `index` of the file; valid until the next call."""
        half = CHUNK_BLOCKS // 2
        runs = [stream.run(index * half, half) for stream in self._streams]
        for block in range(half):
            place = 2 * block * BLOCK_BYTES
            for run in runs:
                self._bytes[place : place + BLOCK_BYTES] = run[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                place += BLOCK_BYTES
        return self._bytes


class SplitRow(ShareRow):
    """Every second block of a file is shared, so that its extents are split into single blocks."""

    base = "split"

    def make_lines(self, settings):
        title = f"splitting long extents on {self.where}: every second block of a file shared, rate of the whole file"
        yield BesideLine(self.name, title, "MB/s", goal="report", paper="37.5 MB/s")

    def measure(self, ground, settings, round_no):
        ground.open()
        length, seed = settings.shuffled_bytes, seed_of(round_no, use=31)
        ground.write(SOURCE, UniqueData(seed), length // 2)
        ground.write(TARGET, InterleavedData(seed, seed_of(round_no, use=32)), length)
        ground.warm(SOURCE, TARGET)
        done = ground.share()
        ground.shared_or_raise(done.told, length // 2, self.name)
        yield self.name, ONEFOLD, Sample(length / MB / done.seconds_of("promote", "share"), more=done.told)
        ground.close()
