"""Table 1 and section 4.2: sharing by content against sharing by files, and what hashing costs while a guest writes."""

import json

from lib import device, system
from lib.ext4_sides import Ext4Side
from lib.pool_side import PoolSide
from lib.runner import say

from . import ext
from .experiment import Experiment, expect
from .offline import COMMON, SECONDS_MAX
from .packages import regular_files
from .section import Section
from .welch import Sampled

MIB = 1 << 20
# Nothing but machines; the common volume besides where there is one.
ONLY = ("--include", "machine-*.raw")
# Why bytes stay unshared, by their names in JSON.
REASONS = {
    "differed_bytes": "different", "misaligned_bytes": "misaligned", "resident_bytes": "resident",
    "unwritten_bytes": "set aside or holes", "empty_bytes": "set aside or holes", "encoded_bytes": "encoded",
    "too_short_bytes": "too short", "refused_bytes": "refused", "pinned_bytes": "pinned", "crowded_bytes": "crowded",
    "given_up_bytes": "given up", "unmapped_bytes": "not in the image",
}  # fmt: skip


class Table1Experiment(Experiment):
    """`share run` and `share files --common`, each on a copy of the set, in one run."""

    name = "table-1"
    title = "Table 1: sharing by content (CAS) and by files (FBS)"
    needed = ("mkfs.xfs", "mke2fs", "debugfs")

    def measure(self, bench):
        machines = bench.machines()
        say("  share run")
        with machines.copied() as copy:
            cas = one_pass(bench, copy, "run")
        say("  share files")
        with machines.copied() as copy:
            system.run(bench.programs.onefold, "--quiet", "share", "common", "create", copy.folder / COMMON)
            fbs = one_pass(bench, copy, "files", "--common", "--since", copy.template, "--include", COMMON)
            # What the one leaves that the other finds.
            rest = one_pass(bench, copy, "run")
        return table_1(cas, fbs, rest, machines.count)


def one_pass(bench, copy, verb, *words):
    """Makes one pass with cold caches; returns what it took and what it says."""
    before = copy.free_bytes()
    copy.make_cold()
    read = copy.read_bytes()
    command = (bench.programs.onefold, "share", verb, "--quiet", "--json", *ONLY, *words, copy.folder)
    finished = system.run(*command, timeout=SECONDS_MAX)
    read = copy.read_bytes() - read
    told = json.loads(finished.text)
    expect(not told["trouble"]["failed"], f"`share {verb}` failed: {told['trouble']['failed']}")
    return {
        "seconds": finished.seconds, "cpu_seconds": finished.cpu_seconds, "read_bytes": read,
        "freed_bytes": copy.free_bytes() - before, "shared_bytes": told["shared"]["now_bytes"],
        "unshared": unshared(told), "unique_bytes": unique_bytes(told),
    }  # fmt: skip


def unique_bytes(told):
    """Returns the bytes of contents that a pass by content found at one place only; None of a pass by files."""
    index = told.get("index")
    return index["unique"] * ext.BLOCK_BYTES if index else None


def unshared(told):
    """Returns the bytes that a pass left alone, by the reason."""
    parts = [told["shared"], told.get("examined", {}), *told.get("tiers", [])]
    found = {}
    for key, reason in REASONS.items():
        # What the tiers have of a reason is in the sum of them all, too.
        values = [part[key] for part in parts if part.get(key)]
        if values:
            found[reason] = max(found.get(reason, 0), *values)
    return found


def table_1(cas, fbs, rest, count):
    """Returns the section; `rest` is of a pass by content after that by files."""
    head = ("", "CAS, the paper", "`share run`", "FBS, the paper", "`share files --common`")
    result = Section(Table1Experiment.title, head, data={"cas": cas, "fbs": fbs, "rest": rest})
    volumes = f"1 template + {count}"

    def row(name, unit, scale, key):
        values = (f"{found[key] / scale:,.2f} {unit}" for found in (cas, fbs))
        result.rows.append((name, "", next(values), "", next(values)))

    result.rows = [
        ("sharing unit", "a block", "a block of 4 KiB", "a file", "a block of a file, found by its file"),
        ("left unshared", "metadata", reasons(cas), "metadata; files with a block that differs", reasons(fbs)),
        ("storage behind it", "cluster file system", "XFS", "LVM", "XFS"),
        ("volumes for these machines", volumes, volumes, f"{volumes} + 1 common", f"{volumes} + 1 common"),
    ]
    row("time, cold", "s", 1, "seconds")
    row("processor time", "s", 1, "cpu_seconds")
    row("read from the disk", "MB", 1e6, "read_bytes")
    row("shared", "MB", 1e6, "shared_bytes")
    row("freed, by the file system", "MB", 1e6, "freed_bytes")
    left = f"{rest['shared_bytes'] / 1e6:,.2f} MB"
    result.rows.append(("left, and shared by `share run` after it", "", "", "", left))
    result.notes.append(
        "Equal copies of the set, one after the other, cold. What `share run` finds after `share files` is what no "
        "file of a package tells: logs and caches that are equal in part, metadata, and blocks of files of other "
        "versions. The paper's file unit gives up a file with one block that differs; here only that block stays "
        "unshared."
    )
    return result


def reasons(found):
    """Returns in words what a pass left alone."""
    parts = (f"{reason}: {amount / 1e6:,.2f} MB" for reason, amount in found["unshared"].items())
    words = list(parts)
    if found["unique_bytes"] is not None:
        words.append(f"nowhere else: {found['unique_bytes'] / 1e6:,.2f} MB")
    return "; ".join(words) or "none, of files that it looked at"


class OnlineExperiment(Experiment):
    """A guest writes the packages into its image: on a pool, which hashes as it writes, and on ext4."""

    name = "online-cas"
    title = "Section 4.2: the online cost of CAS"
    needed = ("mke2fs",)

    def measure(self, bench):
        tree, _ = bench.machines().packages()
        files = regular_files(tree)
        stored = sum(path.stat().st_size + ext.BLOCK_BYTES for path in files)
        guest_bytes = (int(stored * 1.2) // MIB + 128) * MIB
        sides = [PoolSide(bench.place, bench.programs.onefold, "256M"), Ext4Side(bench.place)]
        found = {side.name: [] for side in sides}
        try:
            for side in sides:
                device.allocate(side.device, guest_bytes + 512 * MIB)
            for round_no in range(bench.settings.rounds):
                for side in sides if round_no % 2 == 0 else reversed(sides):
                    found[side.name].append(self._write(bench, side, tree, guest_bytes))
        finally:
            for side in sides:
                side.close()
                side.device.unlink(missing_ok=True)
        return online(found, sum(path.stat().st_size for path in files))

    @staticmethod
    def _write(bench, side, tree, guest_bytes):
        """Copies the packages into an image on a side; returns the times of that."""
        side.format()
        side.mount()
        try:
            image = side.path("guest.raw")
            ext.make(image, "ext4", 256, guest_bytes)
            side.settle()
            bench.place.ballast.fill()
            with bench.mounted(image, direct=True) as root:
                machine, server = system.machine_cpu_seconds(), side.server_cpu_seconds()
                finished = system.run("cp", "--recursive", "--no-dereference", f"{tree}/.", root)
                synced = system.run("sync", "--file-system", root)
                machine, server = system.machine_cpu_seconds() - machine, side.server_cpu_seconds() - server
            return {"seconds": finished.seconds + synced.seconds, "machine_seconds": machine, "server_seconds": server}
        finally:
            side.close()


def online(found, length):
    """Returns the section; what was found is by side."""
    head = ("image on", "time", "processor time of the machine", "of the pool's daemon")
    result = Section(OnlineExperiment.title, head, data=found)
    titles = {"pool": "a pool, which hashes as it writes", "ext4": "ext4, plain"}
    means = {side: {key: Sampled.of(run[key] for run in runs).mean for key in runs[0]} for side, runs in found.items()}
    for side, mean in means.items():
        server = f"{mean['server_seconds']:.2f} s" if side == "pool" else ""
        result.rows.append((titles[side], f"{mean['seconds']:.2f} s", f"{mean['machine_seconds']:.2f} s", server))
    more = means["pool"]["machine_seconds"] - means["ext4"]["machine_seconds"]
    result.notes.append(
        f"The same guest writes, {length / 1e6:,.0f} MB of packages into an ext4 in an image, until they are on the "
        f"disk. The pool differs by {more:+.2f} s of processor time, for hashing and everything else that it does. "
        "`share files` and `share run` take nothing while a guest writes, as the paper's FBS does."
    )
    return result
