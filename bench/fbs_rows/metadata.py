"""Tables 3 and 4, and Figure 6: what the maps of files take, as our readers and debugfs count them."""

import os

from lib.measure import Spread
from paper_figures import svg

from . import ext, formulas, published
from .experiment import Experiment, expect
from .section import Section

INODES = (128, 256)
# Those that map blocks, as Table 3 has it.
BLOCK_MAPPED = ("ext2", "ext3", "ext4 without extents")
# A name that no shell or debugfs takes for something else.
NAME = "file-{}"
# An image holds its files, what maps them, and the tables of the file system.
ROOM = 1.02
ROOM_BYTES = 160 << 20


class Counted:
    """Blocks that the map of each file takes beside its inode, which debugfs and our readers agree on."""

    def __init__(self, bench, path, base_bytes):
        self._bench = bench
        self._path = path
        self._base_bytes = base_bytes
        self.blocks = {}
        self.runs = {}

    def add(self, amount, data_blocks):
        """Counts the file of an amount. Raises BenchError where the two differ, or not so many blocks are data."""
        name = NAME.format(amount)
        listed = ext.stat(self._path, name)
        told = self._bench.programs.guest("map", self._path, f"/{name}")
        ours = told["allocated_bytes"] - sum(extent["length_bytes"] for extent in told["extents"])
        theirs = len(listed.map_blocks)
        expect(listed.data_blocks == data_blocks, f"{self._path}: {listed.data_blocks} blocks, not {data_blocks}")
        expect(ours == theirs * ext.BLOCK_BYTES, f"{name}: our reader counts {ours} bytes, debugfs {theirs} blocks")
        self.blocks[amount] = theirs
        self.runs[amount] = len(listed.runs)

    def check_all(self, *there):
        """Raises BenchError unless the map of the whole disk has as many blocks of trees as these files together."""
        found = self._bench.programs.library("map", self._path)["tree_bytes"] - self._base_bytes
        wanted = sum(self.blocks[amount] for amount in there) * ext.BLOCK_BYTES
        expect(found == wanted, f"{self._path}: the map of the disk has {found} bytes of trees, files {wanted}")


def open_image(bench, kind, inode_bytes, length):
    """Makes an empty file system; returns its path and its Counted."""
    path = bench.path("metadata")
    ext.make(path, kind, inode_bytes, length)
    return path, Counted(bench, path, bench.programs.library("map", path)["tree_bytes"])


def count_lengths(bench, kind, inode_bytes, lengths):
    """Returns the blocks of the map of files of so many blocks, without holes, by their length."""
    sizes = sorted(lengths)
    path, counted = open_image(bench, kind, inode_bytes, int(sum(sizes) * ext.BLOCK_BYTES * ROOM) + ROOM_BYTES)
    for length in sizes:
        name = NAME.format(length)
        ext.debugfs(path, f"write /dev/null {name}", f"fallocate {name} 0 {length - 1}")
        counted.add(length, length)
    counted.check_all(*sizes)
    path.unlink()
    return counted.blocks


def count_runs(bench, inode_bytes, runs):
    """Returns the blocks of the map of files of so many runs on ext4, as the kernel writes them, by their number."""
    path, counted = open_image(bench, "ext4", inode_bytes, sum(runs) * ext.BLOCK_BYTES + ROOM_BYTES)
    with bench.mounted(path) as mountpoint:
        for count in runs:
            write_runs(mountpoint / NAME.format(count), count)
    for count in runs:
        counted.add(count, count)
        expect(counted.runs[count] == count, f"{counted.runs[count]} runs were written, not {count}")
    counted.check_all(*runs)
    path.unlink()
    return counted.blocks


def write_runs(path, count):
    """Writes every second block of a file: so many runs, whatever the file system does."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for number in range(count):
            os.pwrite(file, b"x" * ext.BLOCK_BYTES, 2 * number * ext.BLOCK_BYTES)
        os.fsync(file)
    finally:
        os.close(file)


class Table3Experiment(Experiment):
    """Files that are mapped block by block."""

    name = "table-3"
    title = "Table 3 and Figure 6: metadata of files without extents"
    needed = ("mke2fs", "debugfs")

    def measure(self, bench):
        lengths = bench.settings.file_blocks
        counts = {
            (kind, inode): count_lengths(bench, kind, inode, lengths) for kind in BLOCK_MAPPED for inode in INODES
        }
        extents = {inode: count_lengths(bench, "ext4", inode, self._few(lengths)) for inode in INODES}
        section = table_3(lengths, counts)
        section.charts["fbs-figure-6.svg"] = figure_6(lengths, counts, extents)
        return section

    @staticmethod
    def _few(lengths):
        """Returns the lengths that ext4 places in one run wherever there is room."""
        return [length for length in lengths if length <= published.LARGE_BLOCKS + 1]


def table_3(lengths, counts):
    """Returns the section; counts are by kind and size of inode, then by length of the file."""
    section = Section(
        Table3Experiment.title,
        ("blocks of the file", "Table 3", "counted, inode of 128", "inode of 256", "Table 3 is"),
        data={f"{kind}, {inode}": count for (kind, inode), count in counts.items()},
    )
    for length in lengths:
        blocks = agreed(counts, length)
        expect(blocks == formulas.indirect_blocks(length), f"{length} blocks take {blocks} of metadata")
        verdict = compare(formulas.table_3_blocks(length), blocks, "the triple indirect block itself is not counted")
        table = f"{formulas.bytes_of(formulas.table_3_blocks(length)):,} B"
        counted = [f"{formulas.bytes_of(blocks, inode):,} B" for inode in INODES]
        section.rows.append((f"{length:,}", table, *counted, verdict))
    section.notes += [
        f"Equal on {', '.join(BLOCK_MAPPED)}, by debugfs and by our readers. The table has inodes of 128 bytes; "
        "today's have 256, which makes each figure 128 bytes more.",
        "",
        "Printed without parentheses, `Ceiling(X-1036)/1024` rounds before it divides; it is taken as the quotient, "
        "rounded up. The paper's text calls up to 1,037 blocks cheap (one or two blocks of metadata): 1,036 is the "
        "last length with one, and the next takes three.",
    ]
    return section


def agreed(counts, amount):
    """Returns the count of an amount. Raises BenchError where kinds of file systems differ."""
    found = {count[amount] for count in counts.values()}
    expect(len(found) == 1, f"file systems differ in the metadata of {amount}: {counts}")
    return found.pop()


def compare(table, counted, why):
    """Returns how a formula does, in words."""
    if table == counted:
        return "right"
    short = counted - table
    return f"{abs(short)} block{'s' if abs(short) > 1 else ''} {'short' if short > 0 else 'over'}: {why}"


def figure_6(lengths, counts, extents):
    """Returns the chart: metadata in percent of the file."""

    def line(blocks_of, inode):
        return {
            length: Spread.of([100 * formulas.bytes_of(blocks_of(length), inode) / (length * ext.BLOCK_BYTES)])
            for length in lengths
            if blocks_of(length) is not None
        }

    lines = [("Table 3", line(formulas.table_3_blocks, 128))]
    for inode in INODES:
        lines.append((f"counted, {inode} B", line(lambda length: agreed(counts, length), inode)))
    for inode in INODES:
        lines.append((f"extents, {inode} B", line(extents[inode].get, inode)))
    note = "Inodes of 128 and 256 bytes. Extents: ext4, the file in one run."
    return [svg.LinePanel("Metadata of a file without holes", "% of the file", "blocks of the file", lines, note)]


class Table4Experiment(Experiment):
    """Files that are mapped by extents."""

    name = "table-4"
    title = "Table 4: metadata of files with extents"
    needed = ("mke2fs", "debugfs")

    def measure(self, bench):
        runs = bench.settings.file_runs
        return table_4(runs, {("ext4", inode): count_runs(bench, inode, runs) for inode in INODES})


def table_4(runs, counts):
    """Returns the section; counts are by kind and size of inode, then by number of runs."""
    section = Section(
        Table4Experiment.title,
        ("runs of the file", "Table 4", "counted, inode of 128", "inode of 256", "fewest possible", "Table 4 is"),
        data={f"{kind}, {inode}": count for (kind, inode), count in counts.items()},
    )
    for count in runs:
        blocks, table = agreed(counts, count), formulas.table_4_blocks(count)
        verdict = compare(table, blocks, why_table_4(count))
        cells = [f"{formulas.bytes_of(blocks, inode):,} B" for inode in INODES]
        fewest = f"{formulas.bytes_of(formulas.extent_blocks(count)):,} B"
        section.rows.append((f"{count:,}", f"{formulas.bytes_of(table):,} B", *cells, fewest, verdict))
    section.notes.append(
        "By the kernel's ext4, which wrote every second block; counted alike by debugfs and by our readers. A file of "
        "up to four extents needs no block beside its inode, as the paper says."
    )
    return section


def why_table_4(runs):
    """Returns what the formula leaves out."""
    if formulas.extent_blocks(runs) == formulas.over(runs, formulas.EXTENTS_BLOCK):
        return "the inode itself is the index of up to four leaves"
    return "leaves hold all extents, and none stays in the inode: there is no 4 to be taken off"
