"""Figure 5: sequential reads and writes of a guest before and after a pass, by Bonnie++, and Welch's t-test."""

import json
from dataclasses import dataclass

from lib import cgroup, device, system
from lib.measure import Spread
from lib.pool_side import send, wait_for_end
from lib.runner import say
from lib.system import BenchError
from paper_figures import svg

from . import published
from .experiment import Experiment, expect
from .section import Section
from .welch import Sampled, welch

MIB = 1 << 20
BEFORE, AFTER = "before", "after"
KINDS = {"xfs": "XFS", "btrfs": "Btrfs", "pool": "a pool"}
MKFS = {"xfs": ("mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=1"), "btrfs": ("mkfs.btrfs", "-q", "-f", "--nodiscard")}
# Two machines are enough to share.
MACHINES = ("machine-01.raw", "machine-02.raw")
READ, WRITE = "read", "write"
# Places of Bonnie++'s CSV, in KiB/s. What it was too quick to measure is `+++++`.
FIELDS = {WRITE: 11, READ: 17}
# 'No cost' is claimed where the interval of the difference lies within this part of the mean before.
COST_PART_MAX = 0.05
SECONDS_MAX = 600
# Of the room for Bonnie++'s file.
ROOM = 1.25


class Ground:
    """A file system with two machines, or a pool; in the state before a pass, or after it."""

    def __init__(self, bench, kind, state):
        self._bench = bench
        self._kind = kind
        self._device = bench.path(f"bonnie-{state}")
        self.folder = bench.folder / f"bonnie-{state}.mount"
        self._loop = None
        self._daemon = None

    def make(self, length):
        """Makes it with the machines, none of whose blocks is shared."""
        self.folder.mkdir(exist_ok=True)
        device.allocate(self._device, length)
        if self._kind == "pool":
            system.run(self._bench.programs.onefold, "pool", "create", "--force", self._device)
        else:
            self._loop = device.attach_loop(self._device)
            system.run(*MKFS[self._kind], self._loop)
        self.mount("--dedup", "off")
        with self._bench.mounted(self._bench.machines().original(), "ro", "norecovery", name="set") as source:
            for name in MACHINES:
                system.run("cp", "--sparse=always", "--reflink=never", source / name, self.folder)
        system.run("sync", "--file-system", self.folder)

    def mount(self, *options):
        """Mounts it; options are of a pool."""
        if self._kind != "pool":
            system.run("mount", "-t", self._kind, self._loop, self.folder)
            return
        words = ("--json", "pool", "mount", "--memory", "256M", *options, self._device, self.folder)
        self._daemon = json.loads(system.run(self._bench.programs.onefold, *words).text)["process"]

    def unmount(self):
        if self._kind != "pool":
            system.run("umount", self.folder)
            device.wait_until_unused(self._loop)
            return
        system.run(self._bench.programs.onefold, "pool", "umount", self.folder)
        self._daemon = None

    def grow_guest(self, offset):
        """Gives the guest that Bonnie++ works in room for its file, behind the end of its partition."""
        image = self.folder / MACHINES[0]
        with open(image, "r+b") as file:
            file.truncate(image.stat().st_size + int(self._bench.settings.bonnie_bytes * ROOM))
        loop = system.run("losetup", f"--offset={offset}", "--show", "--find", image).text.strip()
        try:
            system.run("e2fsck", "-f", "-p", loop)
            system.run("resize2fs", loop)
        finally:
            system.run("losetup", "--detach", loop)

    def share(self):
        """Makes a pass; returns what it shared, in bytes."""
        onefold = self._bench.programs.onefold
        if self._kind != "pool":
            told = json.loads(system.run(onefold, "share", "files", "--quiet", "--json", self.folder).text)
            return told["shared"]["now_bytes"]
        self.unmount()
        told = json.loads(system.run(onefold, "pool", "dedup", "--quiet", "--json", self._device).text)
        self.mount("--dedup", "off")
        return told["shared_bytes"]

    def close(self):
        """Takes it away, in whatever state it is."""
        system.unmount(self.folder)
        if self._daemon is not None and send(self._daemon, 0):
            wait_for_end(self._daemon)
        self._daemon = None
        if self._device.exists():
            device.detach_loops(self._device)
        self._device.unlink(missing_ok=True)


@dataclass
class Rates:
    """Rates of one kind of file system in MB/s, by state and by what was done."""

    values: dict

    @classmethod
    def empty(cls):
        return cls({state: {READ: [], WRITE: []} for state in (BEFORE, AFTER)})

    def add(self, state, rates):
        for what, rate in rates.items():
            self.values[state][what].append(rate)


class BonnieExperiment(Experiment):
    """Bonnie++ in a machine's own file system, on each kind of ground, before and after a pass, in turn."""

    name = "figure-5"
    title = "Figure 5: a guest's sequential reads and writes, before and after a pass"
    needed = ("bonnie++", "mkfs.xfs", "mkfs.btrfs")

    def why_not(self, settings):
        return super().why_not(settings) or cgroup.why_missing("memory")

    def measure(self, bench):
        found = {}
        for kind in KINDS:
            say(f"  {kind}")
            found[kind] = self._measure(bench, kind)
        return section(found)

    @staticmethod
    def _measure(bench, kind):
        grounds = {state: Ground(bench, kind, state) for state in (BEFORE, AFTER)}
        length, offset = ground_bytes(bench), bench.machines().root_offset()
        rates = Rates.empty()
        try:
            for ground in grounds.values():
                ground.make(length)
            expect(grounds[AFTER].share() > 0, f"the pass on {KINDS[kind]} shared nothing")
            for ground in grounds.values():
                ground.grow_guest(offset)
            # The first time the images get blocks for what Bonnie++ writes; it is no round.
            for round_no in range(-1, bench.settings.bonnie_rounds):
                order = list(grounds) if round_no % 2 == 0 else list(reversed(grounds))
                for state in order:
                    told = bonnie(bench, grounds[state].folder / MACHINES[0], offset)
                    if round_no >= 0:
                        rates.add(state, told)
        finally:
            for ground in grounds.values():
                ground.close()
        return rates.values


def ground_bytes(bench):
    """Returns how long the disk of a ground has to be."""
    with bench.mounted(bench.machines().original(), "ro", "norecovery", name="set") as source:
        stored = system.stored_bytes(*(source / name for name in MACHINES))
    return (int(stored * 1.2 + 1.5 * bench.settings.bonnie_bytes) // MIB + 384) * MIB


def bonnie(bench, image, offset):
    """Returns the rates that Bonnie++ tells of a guest's file system, with little memory, by what it did."""
    settings = bench.settings
    group = cgroup.LimitedMemory(cgroup.name_for(bench.path("bonnie")), settings.bonnie_memory_bytes)
    bench.place.ballast.fill()
    try:
        with bench.mounted(image, direct=True, offset=offset) as root:
            folder = root / "bonnie"
            folder.mkdir(exist_ok=True)
            size = (settings.bonnie_bytes // MIB, settings.bonnie_memory_bytes // MIB // 2)
            # Blocks only, and no small files.
            words = ("-q", "-d", folder, "-s", size[0], "-r", size[1], "-n", 0, "-f", "-u", "root", "-m", "guest")
            told = system.run("bonnie++", *map(str, words), group=group, timeout=SECONDS_MAX).text
            folder.rmdir()
    finally:
        group.close()
    # Figures of a tiny run mean nothing.
    return rates_of(told, settings.bonnie_bytes if settings.mode == "tiny" else None)


def rates_of(text, length=None):
    """Returns MB/s by what was done, of Bonnie++'s line for programs.

    It tells no rate of what takes less than half a second: with a length, the rate is then at least that of so much.
    """
    fields = text.strip().splitlines()[-1].split(",") if text.strip() else []
    found = {}
    for what, place in FIELDS.items():
        if length and len(fields) > place and fields[place] == "+++++":
            found[what] = 2 * length / 1e6
        elif len(fields) <= place or not fields[place].isdigit():
            raise BenchError(f"Bonnie++ tells no rate of its {what}s: {text.strip()!r}; it needs a longer file")
        else:
            found[what] = int(fields[place]) * 1024 / 1e6
    return found


def section(found):
    """Returns the section; rates are by kind, state and what was done."""
    head = ("on", "sequential", "before a pass", "after it", "p", "95 % interval of the difference", "the paper", "so")
    result = Section(BonnieExperiment.title, head, data=found)
    for kind, rates in found.items():
        for what, p in ((READ, published.P_READ), (WRITE, published.P_WRITE)):
            before, after = rates[BEFORE][what], rates[AFTER][what]
            means = [f"{one.mean:,.0f} MB/s ({one.deviation:,.1f})" for one in map(Sampled.of, (before, after))]
            result.rows.append((KINDS[kind], what, *means, *verdict(before, after), f"p = {p}", claim(before, after)))
    rounds = max(len(rates[BEFORE][READ]) for rates in found.values())
    result.notes.append(
        f"Bonnie++ in the file system of a machine, through a loop device with direct I/O over its image: means of "
        f"{rounds} rounds, which alternate between machines that a pass has shared and equal ones that none has; "
        "deviations in parentheses; Welch's t-test. 'No cost' is claimed where the interval lies within "
        f"{COST_PART_MAX:.0%} of the mean before. A high p alone shows nothing: with few rounds that differ much, "
        "it is high whatever the cost."
    )
    result.charts["fbs-figure-5.svg"] = chart(found)
    return result


def verdict(before, after):
    """Returns p, and the interval of the difference in percent of the mean before."""
    compared, mean = welch(before, after), Sampled.of(before).mean
    if compared is None:
        return "", "too few rounds"
    low, high = (100 * bound / mean for bound in (compared.low, compared.high))
    return f"{compared.p:.2f}", f"{low:+.1f} % to {high:+.1f} %"


def claim(before, after):
    """Returns what may be said of the cost."""
    compared, mean = welch(before, after), Sampled.of(before).mean
    if compared is None:
        return ""
    if max(abs(compared.low), abs(compared.high)) <= COST_PART_MAX * mean:
        return "no cost"
    if compared.high < 0:
        return "a cost"
    return "a gain" if compared.low > 0 else "not decided"


def chart(found):
    """Returns the chart of all rates."""
    groups = []
    for kind, rates in found.items():
        for what in (READ, WRITE):
            bars = [svg.Bar(Spread.of(rates[state][what])) for state in (BEFORE, AFTER)]
            groups.append((f"{KINDS[kind]}, {what}", bars))
    note = "Bars are medians, whiskers reach from the lowest to the highest round."
    return [svg.BarPanel("Bonnie++ in a guest", "MB/s", ["before a pass", "after it"], groups, note)]
