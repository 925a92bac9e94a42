"""The set of machines: `share files`, `share run` and both together, each on a copy of it; and later runs."""

import time

from fbs_rows.machines import MACHINES, root_offset
from lib import system
from lib.measure import Cost, Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, alternating, lower
from lib.system import BenchError
from share_rows.maps import extents_of

from .row import MIB, FilesRow, share

# Where nearly all files of packages lie.
PACKAGED = "usr"
READ_BYTES = 1 << 20
# A file that was just written may be written again without its times telling: a run looks at it once more then.
SETTLE_SECONDS = 0.2
# What a running guest writes between two runs.
WRITTEN_FILES = 20


class MachinesRow(FilesRow):
    """Equal copies of the set, one after the other, cold; another verb has the first one in each round."""

    name = "machines"
    share_of_time = 6.0

    def make_lines(self, settings):
        count = settings.machines
        run = "`share run`"
        title = f"`share files` on {count} clones of a template that got the same packages, cold"
        yield lower("machines-time", title, "s", goal="2x / 4x", beside=run)
        yield lower("machines-cpu", "its processor time", "s", goal="4x / 10x", beside=run)
        yield lower("machines-read", "what it reads from the disk", "MiB", goal="2.5x / 3.3x", beside=run)
        yield BesideLine("machines-freed", "more free afterwards, by df", "MiB", goal="0.95x / 0.98x", beside=run)
        yield lower("machines-each", "for each machine", "s", goal="1.5 s / 0.6 s", paper="15.79 s")
        named = "finding: bytes of files named equal, each pair once, a second, until the list of runs is complete"
        yield BesideLine("machines-find", named, "MB/s", goal="2,800 / 10,000", paper="28 MB/s")
        yield lower("machines-pieces", "pieces of the images on the host afterwards", "", goal="fewer", beside=run)
        reading = "cold reading of all files of packages in a machine, afterwards"
        yield BesideLine("machines-reading", reading, "MB/s", goal="0.85x / 1.0x", beside="before")
        again = "the next run, warm, for each image that has not changed"
        yield lower("machines-again", again, "ms", goal="5 ms / 1 ms")
        full = "a run that looks at everything again (`--full`), for each image"
        yield lower("machines-full", full, "ms", goal="report")
        running = "one machine whose guest runs: the time of a run beyond that of one with `--full`"
        yield lower("machines-running", running, "ms", goal="150 ms / 50 ms")
        both = "`share run --files` on the same, cold"
        yield lower("machines-both-time", both, "s", goal="1.0x / 2x", beside=run)
        yield BesideLine("machines-both-freed", "more free afterwards, by df", "MiB", goal="1.0x", beside=run)

    def measure(self, bench, settings, round_no):
        machines = bench.guests.machines()
        for side in alternating(round_no, self._run, self._files, self._both):
            with machines.copied() as copy:
                yield from side(bench, copy)

    @staticmethod
    def _run(bench, copy):
        run, freed = cold_pass(bench, copy, "run")
        yield "machines-time", OTHER, Sample(run.seconds, Cost(run.cpu_seconds), more=run.told)
        yield "machines-cpu", OTHER, Sample(run.cpu_seconds)
        yield "machines-read", OTHER, Sample(run.read_bytes / MIB)
        yield "machines-freed", OTHER, Sample(freed / MIB)
        yield "machines-pieces", OTHER, Sample(pieces_of(copy))
        yield "machines-both-time", OTHER, Sample(run.seconds)
        yield "machines-both-freed", OTHER, Sample(freed / MIB)

    @staticmethod
    def _files(bench, copy):
        machine = copy.machines[0]
        yield "machines-reading", OTHER, Sample(cold_reading(bench, copy, machine))
        files, freed = cold_pass(bench, copy, "files")
        yield "machines-time", ONEFOLD, Sample(files.seconds, Cost(files.cpu_seconds), more=files.told)
        yield "machines-cpu", ONEFOLD, Sample(files.cpu_seconds)
        yield "machines-read", ONEFOLD, Sample(files.read_bytes / MIB)
        yield "machines-freed", ONEFOLD, Sample(freed / MIB)
        yield "machines-each", ONEFOLD, Sample(files.seconds / len(copy.machines))
        yield "machines-find", ONEFOLD, Sample(named_bytes(files.told) / 1e6 / files.told["seconds_of"]["find"])
        yield "machines-pieces", ONEFOLD, Sample(pieces_of(copy))
        yield "machines-reading", ONEFOLD, Sample(cold_reading(bench, copy, machine))
        yield from next_runs(bench, copy, machine)

    @staticmethod
    def _both(bench, copy):
        both, freed = cold_pass(bench, copy, "run", "--files")
        yield "machines-both-time", ONEFOLD, Sample(both.seconds, Cost(both.cpu_seconds), more=both.told)
        yield "machines-both-freed", ONEFOLD, Sample(freed / MIB)


class ColdPass:
    """A Pass with what it read from the disk."""

    def __init__(self, done, read_bytes):
        self.told, self.seconds, self.cpu_seconds = done.told, done.seconds, done.cpu_seconds
        self.read_bytes = read_bytes


def cold_pass(bench, copy, verb, *words):
    """Makes a pass over the set with cold caches; returns it, and how many bytes more are free."""
    before = copy.free_bytes()
    copy.make_cold()
    read = copy.read_bytes()
    done = share(bench.programs, verb, copy.folder, "--include", MACHINES, *words)
    read = copy.read_bytes() - read
    return ColdPass(done, read), copy.free_bytes() - before


def named_bytes(told):
    """Returns how many bytes a pass has found to be equal by the records of guests.

    A tier counts what a better one names as well, so the sum of tiers has most files up to three times. Packages have
    each pair of files once; "files of no package" is one of them.
    """
    return sum(package["believed_bytes"] for package in told["packages"])


def pieces_of(copy):
    """Returns in how many pieces the machines lie."""
    return sum(len(extents_of(machine)) for machine in copy.machines)


def cold_reading(bench, copy, machine):
    """Returns at how many MB/s the files of packages in a machine are read that are not in any cache."""
    copy.make_cold()
    offset = root_offset(bench.programs, machine)
    with bench.guests.mounted(machine, "ro", "norecovery", offset=offset, direct=True) as root:
        started, length = time.perf_counter(), 0
        for path in (root / PACKAGED).rglob("*"):
            if path.is_symlink() or not path.is_file():
                continue
            with open(path, "rb", buffering=0) as file:
                while data := file.read(READ_BYTES):
                    length += len(data)
        return length / 1e6 / (time.perf_counter() - started)


def next_runs(bench, copy, machine):
    """Measures runs that find nothing new, and one beside a guest that has written a little."""
    copy.warm()
    time.sleep(SETTLE_SECONDS)
    words = ("files", copy.folder, "--include", MACHINES)
    # Only a run that shares nothing more has a result that the next one repeats.
    share(bench.programs, *words)
    again = share(bench.programs, *words)
    expect_looks(again, changed_images=0, is_repeated=True)
    images = again.told["examined"]["images"]
    yield "machines-again", ONEFOLD, Sample(again.seconds * 1000 / images, more=again.told)
    full = share(bench.programs, *words, "--full")
    expect_looks(full, changed_images=0, is_repeated=False)
    yield "machines-full", ONEFOLD, Sample(full.seconds * 1000 / images, more=full.told)
    with bench.guests.mounted(machine, offset=root_offset(bench.programs, machine), direct=True) as root:
        for number in range(WRITTEN_FILES):
            (root / "srv" / f"written-{number}").write_text("by a guest that runs\n" * number, encoding="utf-8")
        # What only the guest's own cache has, no pass sees.
        system.run("sync", "--file-system", root)
        copy.free_bytes()
        time.sleep(SETTLE_SECONDS)
        running = share(bench.programs, *words)
    expect_looks(running, changed_images=1, is_repeated=False)
    # Both have looked at everything, so the difference is what one machine costs.
    yield "machines-running", ONEFOLD, Sample((running.seconds - full.seconds) * 1000, more=running.told)


def expect_looks(done, changed_images, is_repeated):
    """Raises BenchError unless a pass has examined so many images, and repeated an earlier one or not."""
    examined = done.told["examined"]
    changed = examined["images"] - examined["unchanged_images"]
    if changed != changed_images:
        raise BenchError(f"{changed} of {examined['images']} images had changed, not {changed_images}")
    if done.told["unchanged"] != is_repeated:
        raise BenchError(f"the pass {'looked at everything' if is_repeated else 'repeated an earlier one'}")
