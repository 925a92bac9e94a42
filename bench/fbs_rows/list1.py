"""List 1: the blocks of one file, as our map and debugfs list them."""

import os

from . import ext, published
from .experiment import Experiment, expect
from .section import Section

INODE_BYTES = 256
IMAGE_BYTES = 64 << 20
NAME = "/bin/gzip"


class ListExperiment(Experiment):
    """A file as long as the paper's /bin/gzip."""

    name = "list-1"
    title = "List 1: `/bin/gzip`, 53,488 bytes"
    needed = ("mke2fs", "debugfs")

    def measure(self, bench):
        section = Section(
            self.title,
            ("on", "data blocks", "runs of them", "blocks of the map", "debugfs lists", "`guest map` and `guest who`"),
        )
        data, maps = published.LISTED_DATA_BLOCKS, published.LISTED_MAP_BLOCKS
        section.rows.append(("ext2, the paper", data, 2, f"{maps} (IND)", "0-11, (IND), 12-13", ""))
        for kind in ("ext3", "ext4"):
            section.rows.append(self._row(bench, kind, section.data))
        section.notes.append(
            "The list has (12-13) behind the indirect block: two pointers, where the paper's text counts three. `guest "
            "map` leaves the blocks of a map out of the list of content; `guest who` names them as blocks of trees."
        )
        return section

    def _row(self, bench, kind, data):
        path = bench.path(f"list-{kind}")
        tree = bench.folder / "list"
        (tree / "bin").mkdir(parents=True, exist_ok=True)
        (tree / NAME.lstrip("/")).write_bytes(os.urandom(published.LISTED_BYTES))
        ext.make(path, kind, INODE_BYTES, IMAGE_BYTES, "-d", tree)
        listed = ext.stat(path, NAME)
        ours = bench.programs.guest("map", path, NAME)
        compare(listed, ours)
        compare_map_blocks(listed, bench, path)
        expect(listed.data_blocks == published.LISTED_DATA_BLOCKS, f"{kind}: {listed.data_blocks} data blocks")
        expect(len(listed.map_blocks) == (kind == "ext3"), f"{kind}: {len(listed.map_blocks)} blocks of the map")
        path.unlink()
        data[kind] = {"runs": listed.runs, "map_blocks": listed.map_blocks}
        lists = ", ".join([f"{first}-{first + count - 1}" for first, _, count in listed.runs])
        maps = f"{len(listed.map_blocks)} (IND)" if listed.map_blocks else 0
        return kind, listed.data_blocks, len(listed.runs), maps, lists, "equal"


def compare(listed, ours):
    """Raises BenchError unless `guest map` has the runs that debugfs lists."""
    expect(ours["size_bytes"] == listed.size_bytes, f"{ours['size_bytes']} and {listed.size_bytes} bytes long")
    found = [(extent["offset"], extent["place"], extent["length_bytes"]) for extent in ours["extents"]]
    wanted = [tuple(blocks * ext.BLOCK_BYTES for blocks in run) for run in listed.runs]
    expect(found == wanted, f"`guest map` has {found}, debugfs {wanted}")
    together = (listed.data_blocks + len(listed.map_blocks)) * ext.BLOCK_BYTES
    expect(ours["allocated_bytes"] == together, f"{ours['allocated_bytes']} bytes allocated, debugfs lists {together}")


def compare_map_blocks(listed, bench, path):
    """Raises BenchError unless `guest who` calls each block of the map that debugfs lists one of a tree."""
    if listed.map_blocks:
        places = [block * ext.BLOCK_BYTES for block in listed.map_blocks]
        owners = bench.programs.guest("who", path, *map(str, places))["owners"]
        classes = {owner["place"]: owner["class"] for owner in owners}
        expect(classes == dict.fromkeys(places, "trees"), f"`guest who` has {classes} for blocks of the map")
