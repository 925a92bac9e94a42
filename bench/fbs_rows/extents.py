"""Section 5.2: how many changes of a map it takes to share one file, on ext3 and on ext4."""

import json

from lib import device, system

from . import ext, published
from .experiment import Experiment, expect
from .packages import regular_files
from .section import Section

INODE_BYTES = 256
KINDS = ("ext3", "ext4")
# A pass makes calls shorter when they take longer. At the upper limit, other work hardly changes their number.
PATIENT = ("--max-stall", "100ms")
MIB = 1 << 20


class CallsExperiment(Experiment):
    """The same packages twice, on two file systems of a kind."""

    name = "calls"
    title = "Section 5.2: calls for each file"
    needed = ("mke2fs", "mkfs.xfs")

    def measure(self, bench):
        tree, database = bench.machines().packages()
        files = regular_files(tree)
        found = {}
        for kind in KINDS:
            found[kind] = {"files": len(files)} | self._share(bench, kind, tree, database)
        return section(found, large_part(files))

    def _share(self, bench, kind, tree, database):
        """Returns the runs of the files, and the calls that share them one by one and joined."""
        stored = sum(path.stat().st_size + ext.BLOCK_BYTES for path in regular_files(tree))
        length = (int(stored * 1.1) // MIB + 96) * MIB
        told = {}
        for name, words in (("apart", ("--no-join",)), ("joined", ())):
            path = bench.path("calls")
            with open(path, "wb") as file:
                file.truncate(2 * length + 512 * MIB)
            system.run("mkfs.xfs", "-q", "-m", "reflink=1", path)
            with bench.mounted(path, name="calls") as folder:
                for number in (1, 2):
                    self._make(bench, folder / f"{kind}-{number}.raw", kind, length, number, tree, database)
                listed = bench.programs.library("files", folder / f"{kind}-1.raw")
                told["runs"] = listed["extents"] / listed["files"]
                told[name] = share(bench, folder, *PATIENT, *words)["calls"]["shares"]
            path.unlink()
        return told

    @staticmethod
    def _make(bench, path, kind, length, number, tree, database):
        """Makes an image with the packages. Each has other tables, so the files lie elsewhere."""
        ext.make(path, kind, INODE_BYTES, length, "-N", 16384 * (number + 1), "-d", tree)
        with bench.mounted(path, name="image") as root:
            system.run("cp", "--archive", f"{database}/.", root)
        device.detach_loops(path)


def share(bench, folder, *words):
    """Has `share files` share what packages have in common; returns what it says. Raises BenchError on any trouble."""
    text = system.run(bench.programs.onefold, "share", "files", "--quiet", "--json", *words, folder).text
    told = json.loads(text)
    expect(told["shared"]["now_bytes"] > 0, "nothing was shared")
    expect(not told["failed"], f"images were not examined: {told['failed']}")
    return told


def large_part(files):
    """Returns the part of the files that have more than 1,036 blocks."""
    large = [path for path in files if path.stat().st_size > published.LARGE_BLOCKS * ext.BLOCK_BYTES]
    return len(large) / len(files)


def section(found, large):
    """Returns the section; what was found is by kind of file system."""
    calls = ("calls for a file, each run by itself", "runs joined across files")
    head = ("on", "files", "runs of a file", *calls, "the paper")
    result = Section(CallsExperiment.title, head, data=found | {"large_part": large})
    for kind, told in found.items():
        paper = "one write for a file of one extent" if kind == "ext4" else "indirect blocks lie between the data"
        calls = [f"{told[name] / told['files']:.3f}" for name in ("apart", "joined")]
        result.rows.append((kind, f"{told['files']:,}", f"{told['runs']:.3f}", *calls, paper))
    result.notes.append(
        f"Of the files, {large:.2%} have more than {published.LARGE_BLOCKS:,} blocks; the paper: much less than "
        f"{published.LARGE_PART_MAX:.0%}. A call is one of the kernel's, which compares and then shares; where files "
        "follow each other in both images, one call shares them all."
    )
    return result
