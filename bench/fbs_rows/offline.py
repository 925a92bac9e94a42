"""Table 2: what finding and sharing costs, beside the paper's prototype rebuilt as a script."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from lib import system
from lib.measure import Spread
from lib.runner import say
from paper_figures import svg

from . import ext, published
from .experiment import Experiment, expect
from .machines import root_offset
from .packages import regular_files
from .section import Section
from .welch import Sampled

PROTOTYPE = Path(__file__).with_name("prototype.py")
COMMON = "common.img"
COMMON_BYTES = 4 << 30
INODE_BYTES = 256
COLD, WARM = "cold", "warm"
# A side that shares less of what it should is no measurement.
SHARED_PART_MIN = 0.9
# Nobody waits longer for one side's turn.
SECONDS_MAX = 3600
# Files of packages, as the paper's; and nothing but machines.
WORDS = ("--tiers", "1", "--include", "machine-*.raw")


@dataclass(frozen=True)
class Done:
    """One turn of one side."""

    seconds: float
    cpu_seconds: float
    find_seconds: float
    share_seconds: float
    shared_bytes: int
    freed_bytes: int
    read_bytes: int


class Side:
    """A way to find and share what was installed after the clones were made."""

    def __init__(self, key, title, short, *options, common=False):
        self.key = key
        self.title = title
        # Beside a bar of the chart.
        self.short = short
        self._options = options
        self._common = common

    def prepare(self, bench, copy):
        """Does what is no part of a turn."""
        if self._common:
            system.run(bench.programs.onefold, "--quiet", "share", "common", "create", copy.folder / COMMON)

    def run(self, bench, copy):
        """Returns what the side's program says, and what it took."""
        words = (*WORDS, "--since", copy.template, *self._options, *(["--common"] if self._common else []))
        common = ("--include", COMMON) if self._common else ()
        command = (bench.programs.onefold, "share", "files", "--quiet", "--json", *words, *common, copy.folder)
        finished = system.run(*command, timeout=SECONDS_MAX)
        told = json.loads(finished.text)
        expect(not told["failed"] and not told["trouble"]["failed"], f"{self.title}: {told['failed']}")
        return finished, told["seconds_of"], told["shared"]["now_bytes"] + told["shared"]["before_bytes"]


class PrototypeSide(Side):
    """The paper's prototype."""

    def prepare(self, bench, copy):
        ext.make(copy.folder / COMMON, "ext4", INODE_BYTES, COMMON_BYTES)

    def run(self, bench, copy):
        offset = str(root_offset(bench.programs, copy.template))
        words = (copy.folder / COMMON, bench.folder, copy.template, offset, *copy.machines)
        finished = system.run(sys.executable, "-B", PROTOTYPE, *words, timeout=SECONDS_MAX)
        told = json.loads(finished.text)
        return finished, told["seconds_of"], told["shared_bytes"]


SIDES = (
    PrototypeSide("prototype", "the prototype as a script", "prototype"),
    Side("read", "`share files --compare read`", "--compare read", "--compare", "read"),
    Side("kernel", "`share files`", "share files"),
    Side("common", "`share files --common`", "--common", common=True),
)


class OfflineExperiment(Experiment):
    """All machines, cold and warm, each side on a copy of its own."""

    name = "table-2"
    title = "Table 2: finding and sharing on all machines"
    needed = ("mke2fs", "debugfs", "mkfs.xfs")

    def measure(self, bench):
        machines = bench.machines()
        tree, _ = machines.packages()
        files = regular_files(tree)
        stored = sum(-(-path.stat().st_size // ext.BLOCK_BYTES) * ext.BLOCK_BYTES for path in files)
        wanted = (machines.count - 1) * stored * SHARED_PART_MIN
        found = {(side.key, state): [] for state in (COLD, WARM) for side in SIDES}
        for round_no in range(bench.settings.rounds):
            # The side that goes first changes, in case going first matters.
            start = round_no % len(SIDES)
            for side in SIDES[start:] + SIDES[:start]:
                for state in (COLD, WARM):
                    say(f"  round {round_no + 1}: {side.key}, {state}")
                    done = turn(bench, machines, side, state)
                    shared = done.shared_bytes
                    expect(shared >= wanted, f"{side.key} shared {shared} bytes, not {wanted:.0f}")
                    found[side.key, state].append(done)
        return section(found, machines.count, sum(path.stat().st_size for path in files))


def turn(bench, machines, side, state):
    """Measures one side once, on a fresh copy of the set."""
    with machines.copied() as copy:
        side.prepare(bench, copy)
        before = copy.free_bytes()
        copy.make_cold()
        if state == WARM:
            copy.warm()
        read = copy.read_bytes()
        finished, seconds_of, shared = side.run(bench, copy)
        read = copy.read_bytes() - read
        times = (finished.seconds, finished.cpu_seconds, seconds_of["find"], seconds_of["share"])
        return Done(*times, shared, copy.free_bytes() - before, read)


def section(found, count, installed_bytes):
    """Returns the section; turns are by side and state. `installed_bytes` are those of one machine."""
    head = (
        "what", "all machines (deviation)", "each machine", "MB/s", "finding", "sharing", "processor time", "read",
        "freed",
    )  # fmt: skip
    data = {f"{key}, {state}": [vars(done) for done in turns] for (key, state), turns in found.items()}
    result = Section(OfflineExperiment.title, head, data=data)
    printed = f"{published.PRINTED_SECONDS_EACH} s, printed; {published.seconds_each():.2f} s"
    rate = f"{published.PRINTED_MB_PER_SECOND}, printed; {published.mb_per_second():.2f}"
    total = f"{published.TOTAL_SECONDS} s ({published.TOTAL_DEVIATION}), {published.MACHINES} machines"
    result.rows.append(("the paper, mean of five runs", total, printed, rate, "", "", "", "", ""))
    titles = {side.key: side.title for side in SIDES}
    for (key, state), turns in found.items():
        total = Sampled.of(done.seconds for done in turns)
        means = {name: Sampled.of(getattr(done, name) for done in turns).mean for name in vars(turns[0])}
        result.rows.append(
            (
                f"{titles[key]}, {state}",
                f"{total.mean:.2f} s ({total.deviation:.2f})",
                f"{total.mean / count:.2f} s",
                f"{count * installed_bytes / 1e6 / total.mean:,.1f}",
                f"{means['find_seconds']:.2f} s",
                f"{means['share_seconds']:.2f} s",
                f"{means['cpu_seconds']:.2f} s",
                f"{means['read_bytes'] / 1e6:,.0f} MB",
                f"{means['freed_bytes'] / 1e6:,.0f} MB",
            )
        )
    rounds = max(map(len, found.values()))
    result.notes.append(
        f"{count} machines with {installed_bytes / 1e6:,.0f} MB of installed files each, one after the other, means of "
        f"{rounds} runs. The paper's 677.09 s are 16.12 s and 27.17 MB/s for each of 42; it prints 15.79 s and 27.74. "
        "Its prototype (a read-only mount, the package log, MD5 of each file, `debugfs` for its blocks) is rebuilt as "
        "a script, with FICLONERANGE for its ioctl. All sides share the files of packages only. What is neither "
        "finding nor sharing is mostly the making of the common volume. Read: from the disk."
    )
    result.charts["fbs-table-2.svg"] = chart(found, count)
    return result


def chart(found, count):
    """Returns the chart of finding and sharing, for each machine."""
    names = {side.key: side.short for side in SIDES}
    groups = []
    for (key, state), turns in found.items():
        parts = ([done.find_seconds / count for done in turns], [done.share_seconds / count for done in turns])
        groups.append((f"{names[key]}, {state}", [svg.Bar(Spread.of(values)) for values in parts]))
    note = f"In the paper: {published.seconds_each():.2f} s for finding and sharing together."
    return [svg.BarPanel("Time for each machine", "s", ["finding", "sharing"], groups, note)]
