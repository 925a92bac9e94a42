"""ext2, ext3 and ext4 in image files, and what debugfs says of their files."""

import re
from dataclasses import dataclass

from lib import system
from lib.system import BenchError

BLOCK_BYTES = 4096
# By the names of the tables. Without `lazy_itable_init` a large file system takes minutes.
KINDS = {
    "ext2": ("-t", "ext2"),
    "ext3": ("-t", "ext3"),
    "ext4 without extents": ("-t", "ext4", "-O", "^extent,^64bit"),
    "ext4": ("-t", "ext4"),
}
# A run of blocks, as in `(12-13):1051-1052`, `(IND):1050` or `(14-15[u]):77-78`.
RUN = re.compile(r"\(([A-Z]+)?(\d+)?(?:-(\d+))?(?:\[u\])?\):(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Listed:
    """What debugfs lists of a file: data as (block of the file, block of the disk, count), and blocks of its map."""

    size_bytes: int
    runs: tuple
    map_blocks: tuple

    @property
    def data_blocks(self):
        return sum(count for _, _, count in self.runs)


def make(path, kind, inode_bytes, length, *more):
    """Makes an empty file system in a sparse file."""
    with open(path, "wb") as file:
        file.truncate(length)
    words = ("-b", BLOCK_BYTES, "-I", inode_bytes, "-m", 0, "-E", "lazy_itable_init=1,nodiscard")
    system.run("mke2fs", "-q", "-F", *KINDS[kind], *map(str, (*words, *more)), path)


def debugfs(path, *commands):
    """Gives commands to debugfs, which may write. It has no exit status: callers look at what came of it."""
    system.run("debugfs", "-w", "-f", "-", path, text="".join(f"{command}\n" for command in commands))


def stat(path, name):
    """Returns what debugfs lists of a file."""
    return parse_stat(system.run("debugfs", "-R", f"stat {name}", path).text)


def parse_stat(text):
    """Returns a Listed of what `stat` of debugfs prints."""
    size = re.search(r"Size: (\d+)", text)
    listed = re.split(r"^(?:BLOCKS|EXTENTS):$", text, flags=re.MULTILINE)
    if size is None or len(listed) != 2:
        raise BenchError("debugfs lists no blocks of the file")
    runs, maps = [], []
    for name, first, last, place, end in RUN.findall(listed[1]):
        if name:
            maps += range(int(place), int(end or place) + 1)
        else:
            runs.append((int(first), int(place), int(last or first) - int(first) + 1))
    return Listed(int(size[1]), tuple(runs), tuple(maps))
