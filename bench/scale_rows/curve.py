"""What it costs to write into pools of different sizes."""

from lib.measure import Line, Sample
from lib.rows.row import expect_shared, expect_unique, seed_of
from lib.rows.streams import throughput

from .pools import PoolPlan, ScaleRow, amount, memory_line

FILLING, NEW, COPY = "filling", "new", "copy"
# What is written, in words, by the key of its lines.
STREAMS = {"unique": "sequential unique write", "duplicate": "duplicates of it in their order, caches cold"}


class CurveRow(ScaleRow):
    """The same stream of new blocks goes into each pool, and again, in each round one pool after the other.

    The copy is written by a fresh daemon that has nothing but its filter: its entries have to be read from the stores.
    """

    name = "curve"
    # With all pools mounted anew in each round.
    share_of_time = 1.5

    def make_lines(self, settings):
        smallest = settings.curve_blocks[0]
        for key, what in STREAMS.items():
            for blocks in settings.curve_blocks:
                how = f"{what}, 1 MiB, O_DIRECT, fsync; the pool holds {amount(blocks)}"
                yield Line(f"curve-{key}-{blocks}", how, "MB/s", goal="report")
                if blocks != smallest:
                    title = f"of what the pool with {amount(smallest)} does"
                    yield Line(f"curve-{key}-{blocks}-part", title, "x", goal="0.9x / 1.0x")
        for blocks in settings.curve_blocks:
            yield memory_line(f"curve-memory-{blocks}", settings.curve_memory_mib, f" with {amount(blocks)}")

    def plans(self, settings):
        return curve_plans(settings)

    def prepare(self, pools, settings):
        for pool in pools:
            pool.serve()
            pool.wait_for_filter()
            # The first write to a place of a sparse file is the file system's work below. All places are used once.
            filling = pool.plan.free_bytes * 4 // 5 >> 20 << 20
            pool.client("write", pool.path(FILLING), bytes=filling, seed=seed_of(0, use=21), direct=True)
            pool.remove(FILLING)

    def measure(self, pools, settings, round_no):
        samples, rates = [], {}
        # The side that goes first changes, in case going first matters.
        start = round_no % len(pools)
        for pool in pools[start:] + pools[:start]:
            rates[pool.plan.blocks] = by_key = self._write_both(pool, settings, round_no)
            samples += [(f"curve-{key}-{pool.plan.blocks}", sample) for key, sample in by_key.items()]
        smallest = rates[settings.curve_blocks[0]]
        for blocks in settings.curve_blocks[1:]:
            for key in STREAMS:
                part = Sample(rates[blocks][key].value / smallest[key].value)
                samples.append((f"curve-{key}-{blocks}-part", part))
        return samples

    def _write_both(self, pool, settings, round_no):
        length, seed = settings.stream_bytes, seed_of(round_no, use=20)
        answer, cost = pool.client("write", pool.path(NEW), bytes=length, seed=seed, direct=True)
        expect_unique(cost, self.name)
        unique, memory = throughput(length, answer, cost), pool.highest_memory()
        pool.make_cold()
        answer, cost = pool.client("write", pool.path(COPY), bytes=length, seed=seed, direct=True)
        expect_shared(cost, self.name)
        memory = max(memory, pool.highest_memory(), key=lambda sample: sample.value)
        pool.remove(NEW, COPY)
        return {"unique": unique, "duplicate": throughput(length, answer, cost), "memory": memory}


def curve_plans(settings):
    """Returns the pools of the curve, with room for both files and half as much again."""
    free_bytes = settings.stream_bytes * 5 // 2
    return [PoolPlan(blocks, free_bytes, settings.curve_memory_mib) for blocks in settings.curve_blocks]
