"""What the pool's daemon keeps in memory."""

from ..measure import Line, Sample
from .row import Row, seed_of
from .streams import COPY

FIRST = "first"
MIB = 1 << 20


class MemoryRow(Row):
    """A fresh daemon takes a unique file and a duplicate of it and reads one back; then it is looked at."""

    name = "memory"
    sides = ("pool",)
    lines = (
        Line("memory-peak", "daemon: highest resident memory", "MiB", goal="within `--memory`", has_ratio=False),
        Line("memory-resident", "daemon: resident memory afterwards", "MiB", has_ratio=False),
        Line("memory-filter", "daemon: filter", "MiB", has_ratio=False),
    )
    rounds_max = 1

    def measure(self, side, settings, round_no):
        side.make_cold()
        side.client("write", side.path(FIRST), bytes=settings.file_bytes, seed=seed_of(round_no, use=8))
        side.client("write", side.path(COPY), bytes=settings.file_bytes, seed=seed_of(round_no, use=8), direct=True)
        side.client("read", side.path(FIRST), bytes=settings.file_bytes, seed=seed_of(round_no, use=8))
        memory, found = side.memory_status(), side.stat()["filter"]
        side.remove(FIRST, COPY)
        return {
            "memory-peak": Sample(memory["VmHWM"] / MIB, more={"setting": settings.memory}),
            "memory-resident": Sample(memory["VmRSS"] / MIB, more={"anonymous_bytes": memory["RssAnon"]}),
            "memory-filter": Sample(found["memory_bytes"] / MIB, more={"entry_count": found["entry_count"]}),
        }
