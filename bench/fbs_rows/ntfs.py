"""Table 5 and section 5.3: what NTFS keeps in the records of files, as NTFS-3G writes it."""

import errno
import re
from contextlib import contextmanager

from lib import system

from . import published
from .experiment import Experiment, expect
from .packages import regular_files
from .section import Section

# NTFS-3G is slow with large folders.
LENGTHS = range(400, 1000)
# Single free clusters of a volume that is full otherwise, and the file that takes them.
GAPS = 450
LENGTH_MAX = 400
RUNS = "runs"
CLUSTER_BYTES = 4096
MKNTFS = (
    "mkntfs", "--quiet", "--fast", "--force", "--cluster-size", CLUSTER_BYTES, "--sector-size", 512,
    "--partition-start", 0, "--heads", 255, "--sectors-per-track", 63,
)  # fmt: skip


class NtfsExperiment(Experiment):
    """Small files, files in many runs, and the room for records."""

    name = "table-5"
    title = "Table 5: metadata of NTFS, by NTFS-3G"
    needed = ("mkntfs", "ntfs-3g", "ntfsinfo")

    def measure(self, bench):
        path = bench.path("ntfs")
        make(path, bench.settings.ntfs_bytes)
        with mounted(bench, path) as mountpoint:
            write_lengths(mountpoint)
        resident = longest_resident(bench, path)
        zone, clusters = zone_of(path)
        first = bench.programs.guest("map", path, f"/{name_of(LENGTHS[-1])}")["extents"][0]["place"] // CLUSTER_BYTES
        expect(first >= zone, f"content lies at cluster {first}, within the {zone} set aside")
        path.unlink()
        runs = {apart: runs_of_record(bench, apart) for apart in bench.settings.runs_apart}
        return table_5(resident, runs, zone / clusters, self._small_files(bench))

    @staticmethod
    def _small_files(bench):
        """Returns what the library finds of a volume with the files of the packages."""
        tree, _ = bench.machines().packages()
        files = regular_files(tree)
        path = bench.path("ntfs-packages")
        make(path, sum(file.stat().st_size + 2 * CLUSTER_BYTES for file in files) + (256 << 20))
        with mounted(bench, path) as mountpoint:
            system.run("cp", "--recursive", "--no-dereference", "--no-preserve=all", f"{tree}/.", mountpoint)
        found = bench.programs.library("files", path)
        path.unlink()
        return found | {"all_files": len(files)}


def table_5(resident, runs, zone_part, small):
    """Returns the section: the longest content in a record, the most runs of one by
    their distance, the part of the volume for records."""
    low, high = published.RESIDENT_BYTES
    section = Section(NtfsExperiment.title, ("what", "the paper", "here"))
    data = {"resident_bytes": resident, "runs_of_record": runs, "zone_part": zone_part, "small_files": small}
    section.data = data
    section.rows = [
        ("longest content that stays in its MFT record", f"{low}-{high} bytes", f"{resident} bytes"),
        *(
            (f"runs that fill one record, about {apart} clusters apart", published.RUNS_OF_RECORD, count)
            for apart, count in runs.items()
        ),
        ("room set aside for records", f"{published.MFT_ZONE_PART:.1%} of the volume", f"{zone_part:.1%}"),
        (
            "files of the packages that no block sharing reaches",
            "",
            f"{small['inline_files']:,} of {small['all_files']:,}, with {small['inline_bytes']:,} bytes",
        ),
    ]
    section.notes.append(
        "NTFS-3G wrote these volumes, and its records have a security descriptor each; Windows keeps them in one "
        "place, which leaves more room for content. A run takes 3 to 9 bytes of a record, by its length and its "
        "distance from the one before: 30 runs are those of a large, old volume. Table 5 gives content in a "
        "record no metadata; the record of 1 KiB is there all the same."
    )
    return section


def make(path, length):
    """Makes an empty NTFS in a sparse file."""
    with open(path, "wb") as file:
        file.truncate(length // CLUSTER_BYTES * CLUSTER_BYTES)
    system.run(*map(str, MKNTFS), path)


@contextmanager
def mounted(bench, path):
    """Has an NTFS mounted by NTFS-3G meanwhile."""
    mountpoint = bench.folder / "ntfs.mount"
    mountpoint.mkdir(exist_ok=True)
    system.run("ntfs-3g", "-o", "big_writes", path, mountpoint)
    try:
        yield mountpoint
    finally:
        system.unmount(mountpoint)


def name_of(length):
    return f"length-{length:04}"


def write_lengths(folder):
    for length in LENGTHS:
        (folder / name_of(length)).write_bytes(b"x" * length)


def longest_resident(bench, path):
    """Returns the longest length whose content lies in the record. Raises BenchError where a shorter one does not."""
    files = bench.programs.guest("ls", path, "/")["files"]
    lengths = {file["size_bytes"]: file["allocated_bytes"] for file in files if file["path"].startswith("/length-")}
    inside = [length for length in LENGTHS if lengths[length] == 0]
    expect(inside, "no content lies in a record")
    expect(inside == list(range(LENGTHS[0], inside[-1] + 1)), "lengths in a record are not consecutive")
    return inside[-1]


def runs_of_record(bench, apart):
    """Returns the most runs, about so many clusters apart, that one record holds. The length of the file is halved."""
    path = bench.path("ntfs-runs")
    make(path, int(GAPS * apart * CLUSTER_BYTES * 1.2) + (32 << 20))
    with mounted(bench, path) as folder:
        fill_but_gaps(folder, apart)
    # A file with a list needs clusters of its own for that.
    low, high, filled = 1, LENGTH_MAX, 1
    expect(runs_of(bench, path, high)[1], f"one record maps {high} clusters")
    while high - low > 1:
        middle = (low + high) // 2
        runs, needs_list = runs_of(bench, path, middle)
        low, high, filled = (low, middle, filled) if needs_list else (middle, high, runs)
    path.unlink()
    return filled


def fill_but_gaps(folder, apart):
    """Fills a volume, and then frees single clusters at about equal distances: later files lie there."""
    for number in range(GAPS):
        (folder / f"gap-{number}").write_bytes(b"x" * CLUSTER_BYTES)
        (folder / f"between-{number}").write_bytes(b"x" * CLUSTER_BYTES * (apart - 1))
    for length in (1 << 20, CLUSTER_BYTES):
        fill_up(folder / f"rest-{length}", length)
    for number in range(GAPS):
        (folder / f"gap-{number}").unlink()


def fill_up(path, length):
    """Writes to a file, so much in each call, until there is no more room."""
    try:
        with open(path, "wb", buffering=0) as file:
            while True:
                file.write(b"x" * length)
    except OSError as error:
        # Of a write, or of the end of the file.
        if error.errno != errno.ENOSPC:
            raise


def runs_of(bench, path, count):
    """Returns in how many runs a file of so many clusters lies, and whether it has a list of further records."""
    with mounted(bench, path) as folder:
        (folder / RUNS).unlink(missing_ok=True)
        (folder / RUNS).write_bytes(b"x" * CLUSTER_BYTES * count)
    found = len(bench.programs.guest("map", path, f"/{RUNS}")["extents"])
    told = system.run("ntfsinfo", "--force", "--verbose", "--file", RUNS, path).text
    return found, "$ATTRIBUTE_LIST" in told


def zone_of(path):
    """Returns how many clusters NTFS-3G sets aside at the beginning, and all clusters."""
    told = system.run("ntfsinfo", "--force", "--mft", path).text
    found = [re.search(rf"{words}: (\d+)", told) for words in ("MFT Zone End", "Volume Size in Clusters")]
    if not all(found):
        raise system.BenchError("ntfsinfo does not tell of the MFT zone")
    return tuple(int(match[1]) for match in found)
