"""What the filter takes of the memory, and how often it errs."""

from lib.data import BLOCK_BYTES
from lib.measure import Line, Sample
from lib.rows.row import expect_unique, seed_of
from lib.system import BenchError

from .curve import NEW, curve_plans
from .pools import ScaleRow, amount, memory_line


class FilterRow(ScaleRow):
    """The filter of the largest pool of the curve, complete; then new blocks are written, which it cannot know."""

    name = "filter"
    rounds_max = 1

    def make_lines(self, settings):
        size = amount(settings.curve_blocks[-1])
        return (
            Line(
                "filter-bytes", f"filter memory for each stored block, with all of {size}", "B",
                higher_is_better=False, goal="7 B / 4 B",
            ),
            Line(
                "filter-lookups", f"look-ups of new blocks that read a store for nothing, beside {size}", "%",
                higher_is_better=False, goal="1 % / 1 %",
            ),
            memory_line("filter-memory", settings.curve_memory_mib),
        )  # fmt: skip

    def plans(self, settings):
        return curve_plans(settings)[-1:]

    def measure(self, pools, settings, round_no):
        (pool,) = pools
        pool.serve()
        pool.wait_for_filter()
        before = pool.stat()
        of_filter = before["filter"]
        if of_filter["refused_count"] or of_filter["entry_count"] < pool.plan.blocks:
            raise BenchError(f"{self.name}: the filter does not hold all blocks: {of_filter}")
        length = settings.stream_bytes
        _, cost = pool.client("write", pool.path(NEW), bytes=length, seed=seed_of(0, use=22), direct=True)
        expect_unique(cost, self.name)
        after, memory = pool.stat(), pool.highest_memory()
        pool.remove(NEW)
        in_vain = after["activity"]["lookups_for_nothing"] - before["activity"]["lookups_for_nothing"]
        looked_up = length // BLOCK_BYTES
        return [
            ("filter-bytes", Sample(of_filter["memory_bytes"] / of_filter["entry_count"], more=of_filter)),
            ("filter-lookups", Sample(100 * in_vain / looked_up, more={"blocks": looked_up, "for_nothing": in_vain})),
            ("filter-memory", memory),
        ]
