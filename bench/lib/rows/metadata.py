"""What a pool's own structures take of the disk."""

import json

from .. import system

from ..measure import Line, Sample
from .row import Row, expect_unique, seed_of

NAME = "mapped"
# In a pool as small as the run's, the journal weighs more than anything else that is fixed.
LARGE_POOL = "1T"


class MetadataRow(Row):
    """The pool's own account: what was set aside when it was made, and what a mapped file adds; no clock runs."""

    name = "metadata"
    sides = ("pool",)
    lines = (
        Line(
            "metadata-fixed", "metadata on disk: fixed when a pool of 1 TiB is made, of its size", "%",
            higher_is_better=False, goal="0.7 % / 0.65 %", has_ratio=False,
        ),
        Line(
            "metadata-fixed-here", "the same of the run's own pool, with a journal of nearly the same size", "%",
            higher_is_better=False, has_ratio=False,
        ),
        Line(
            "metadata-maps", "metadata on disk: file maps and names, of the data of a unique file", "%",
            higher_is_better=False, goal="0.3 % / 0.25 %", has_ratio=False,
        ),
    )  # fmt: skip
    rounds_max = 1

    def measure(self, side, settings, round_no):
        before = side.stat()
        _, cost = side.client("write", side.path(NAME), bytes=settings.file_bytes, seed=seed_of(round_no, use=15))
        expect_unique(cost, self.name)
        side.settle()
        after = side.stat()
        side.remove(NAME)
        maps_bytes = after["metadata_dynamic_bytes"] - before["metadata_dynamic_bytes"]
        mapped_bytes = after["distinct_bytes"] - before["distinct_bytes"]
        return {
            "metadata-fixed": fixed(large_pool(side)),
            "metadata-fixed-here": fixed(after),
            "metadata-maps": Sample(
                100 * maps_bytes / mapped_bytes, more={"maps_bytes": maps_bytes, "mapped_bytes": mapped_bytes}
            ),
        }


def fixed(stat):
    fixed_bytes, device_bytes = stat["metadata_fixed_bytes"], stat["device_bytes"]
    return Sample(100 * fixed_bytes / device_bytes, more={"fixed_bytes": fixed_bytes, "device_bytes": device_bytes})


def large_pool(side):
    """Returns the account of a new large pool in a sparse file, which is gone again then."""
    path = side.device.with_name("large.device")
    try:
        system.run(side.onefold, "pool", "create", "--size", LARGE_POOL, path)
        return json.loads(system.run(side.onefold, "--json", "pool", "stat", path).text)["pool"]
    finally:
        path.unlink(missing_ok=True)
