"""How much is measured: one table for all programs, with a column for each kind of run.

A full run is what documents show, a quick one what a change is looked at with; a tiny one only shows that everything
works. Names say the unit: bytes, MiB, seconds, blocks; everything else is a count.
"""

from dataclasses import make_dataclass
from typing import NamedTuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Figure 12 of the LiveDFS paper fetches so many images at once, at most.
PAPER_IMAGES_MAX = 4
# Section 4.1 of it: index key and bucket key of the filter, in bits.
PAPER_INDEX_BITS = 19
PAPER_TAG_BITS = 24

# name: (full, quick, tiny)
TABLE = {
    # bench/run.py: a pool beside ext4.
    "run": {
        "rounds": (5, 3, 1),
        # What all rows may take together, each by its `share_of_time` (rows/row.py). Making the disks comes on top.
        "run_seconds": (1380, 160, 1e6),
        # Each side's disk. It holds two large files, or one and an image.
        "device_bytes": (9 * GIB, 1536 * MIB, 512 * MIB),
        "file_bytes": (2 * GIB, 512 * MIB, 16 * MIB),
        # Of the files that are written with 4 KiB in each call, and of those that lie in bits and pieces.
        "small_writes_bytes": (GIB, 128 * MIB, 4 * MIB),
        "layout_bytes": (2 * GIB, 256 * MIB, 16 * MIB),
        # Of the pool whose free space lies in single blocks, and of the file that is written there.
        "punched_device_bytes": (4 * GIB, 512 * MIB, 64 * MIB),
        "punched_write_bytes": (GIB, 128 * MIB, 8 * MIB),
        # Of the file on a slowed disk, and of the one that is twice as long as the memory.
        "slow_bytes": (384 * MIB, 128 * MIB, 96 * MIB),
        "beyond_memory_bytes": (2 * GIB, 512 * MIB, 192 * MIB),
        "fio_seconds": (4, 1, 0.2),
        "fsync_file_bytes": (256 * MIB, 64 * MIB, 8 * MIB),
        "fsync_seconds": (3, 1, 0.2),
        # How long an idle daemon is watched, and how long it may take before to find that there is no more work.
        "idle_seconds": (3, 3, 0.5),
        "calm_seconds": (1, 1, 0.2),
        # Of each image of a large import, and how many there are.
        "import_image_bytes": (1920 * MIB, 64 * MIB, 16 * MIB),
        "import_images": (10, 8, 3),
        # From the beginning of a write to the crash.
        "recovery_seconds": (7, 7, 1),
        "small_files": (10_000, 2_000, 100),
        # How many guests boot at once.
        "guests": (20, 20, 2),
        # The pool's `--memory`.
        "memory": ("1G", "1G", "64M"),
    },
    # bench/scale.py: pools that describe very many blocks.
    "scale": {
        "rounds": (3, 2, 1),
        "run_seconds": (840, 150, 1e6),
        # Of the pools that the same is written into, from the smallest on.
        "curve_blocks": ((10**6, 10**7, 10**8), (10**6, 10**7), (10**5, 10**6)),
        # Of the pool that is mounted, crashed, and loses its one file.
        "large_blocks": (1 << 28, 1 << 25, 1 << 21),
        # `--memory` of the two kinds.
        "curve_memory_mib": (1024, 1024, 64),
        "large_memory_mib": (4096, 1024, 64),
        # What is written in one stream.
        "stream_bytes": (GIB, 512 * MIB, 32 * MIB),
        # The file with data in the large pool, which requests of 4 KiB go to.
        "scratch_bytes": (2 * GIB, 512 * MIB, 64 * MIB),
        # Of one sample of requests, and how many samples there are.
        "fio_seconds": (5, 2, 1),
        "fio_samples": (3, 2, 1),
        # How long reclaim is watched when nobody else works.
        "alone_seconds": (20, 3, 0.5),
    },
    # bench/share.py: sharing between plain files.
    "share": {
        "rounds": (3, 1, 1),
        # Of each table.
        "run_seconds": (570, 140, 1e6),
        # The disk on which each row's file system is made.
        "device_bytes": (8 * GIB, 2 * GIB, 512 * MIB),
        # Of each of two files whose blocks are equal: in single blocks, in long runs, and beside a guest.
        "shuffled_bytes": (256 * MIB, 64 * MIB, 6 * MIB),
        "runs_bytes": (GIB, 256 * MIB, 16 * MIB),
        "guest_bytes": (512 * MIB, 48 * MIB, 12 * MIB),
        # Of the file that is read before and after it was shared.
        "read_bytes": (384 * MIB, 96 * MIB, 12 * MIB),
        "fio_seconds": (4, 1, 1),
        # Of each of twenty images beside a watch, and how long their guests write.
        "watch_image_bytes": (128 * MIB, 32 * MIB, 4 * MIB),
        "watch_seconds": (60, 20, 3),
        # Of each of twenty images that a watch has to read whole within the share of their writes.
        "rotation_image_bytes": (32 * MIB, 16 * MIB, 2 * MIB),
        # Of made-up images, and how many there are where there are no real ones.
        "image_bytes": (512 * MIB, 64 * MIB, 8 * MIB),
        "images_made": (5, 4, 2),
        # Of those over which a pass is interrupted.
        "cut_image_bytes": (512 * MIB, 128 * MIB, 8 * MIB),
        "cut_images": (12, 6, 3),
        # What the real images of a set may take together.
        "images_bytes_max": (2700 * MIB, 0, 0),
        # How long another program may work on the set.
        "other_seconds_max": (150, 60, 60),
        # Entries of the described index, and how many blocks are merged into it.
        "index_entries": (1 << 28, 1 << 24, 1 << 16),
        "index_news": (1 << 23, 1 << 20, 1 << 10),
    },
    # bench/guest.py: what is inside of images.
    "guest": {
        "rounds": (5, 3, 1),
        "run_seconds": (480, 120, 1e6),
        # How many clones are asked one question.
        "clones": (100, 100, 3),
        # Of the one large file.
        "large_bytes": (GIB, 256 * MIB, 4 * MIB),
        # Of the file systems that are nearly empty, and what they hold.
        "sparse_bytes": (2 << 40, 2 << 40, 4 * GIB),
        "sparse_files": (100_000, 20_000, 200),
        # Of the image that is made up where there is no real one.
        "made_bytes": (512 * MIB, 256 * MIB, 32 * MIB),
        "made_packages": (300, 100, 4),
        # What real images may take together.
        "images_bytes_max": (2700 * MIB, 2700 * MIB, 0),
    },
    # bench/paper.py: the LiveDFS paper's experiments.
    "paper": {
        "rounds": (5, 3, 1),
        # Crashes and images take longer, so there are fewer of them.
        "crash_rounds": (3, 2, 1),
        "image_rounds": (2, 1, 1),
        # Holds two large files, and four images, on ext4 too.
        "device_bytes": (4608 * MIB, 1536 * MIB, 320 * MIB),
        "file_bytes": (1024 * MIB, 256 * MIB, 16 * MIB),
        # The file that a crash interrupts: long enough to hit its middle.
        "crash_bytes": (1024 * MIB, 512 * MIB, 160 * MIB),
        # Length of each image that is made where there are no real ones, and how many images there are.
        "synthetic_bytes": (1024 * MIB, 256 * MIB, 16 * MIB),
        "image_count": (PAPER_IMAGES_MAX, PAPER_IMAGES_MAX, 2),
        # The pool's `--memory`.
        "memory": ("1G", "1G", "64M"),
    },
    # bench/fbs.py: the FBS paper's experiments.
    "fbs": {
        # As in the paper, and as in its Figure 4.
        "machines": (42, 6, 2),
        # Of what takes the time of all machines, and of Bonnie++; each side has its turn in each.
        "rounds": (5, 2, 1),
        "bonnie_rounds": (10, 4, 1),
        # Lengths of files in blocks: the last and the first of each line of Table 3.
        "file_blocks": (
            (1, 12, 13, 1036, 1037, 2060, 2061, 1_049_612, 1_049_613),
            (1, 12, 13, 1036, 1037, 2060, 2061),
            (1, 12, 13),
        ),
        # Runs of files: those that fill an inode, a leaf, and all leaves that an inode leads to.
        "file_runs": ((1, 4, 5, 340, 341, 680, 1360, 1361, 13_600), (1, 4, 5, 340, 341, 1360, 1361), (1, 4, 5)),
        "ntfs_bytes": (GIB, 512 * MIB, 256 * MIB),
        # Distances of the runs of a file, in clusters.
        "runs_apart": ((2, 200, 500), (2, 200), (2,)),
        # Of the packages that are hashed.
        "hashed_bytes": (512 * MIB, 256 * MIB, 4 * MIB),
        # Of the file that Bonnie++ writes and reads, and of the memory that it has.
        "bonnie_bytes": (2 * GIB, GIB, 64 * MIB),
        "bonnie_memory_bytes": (512 * MIB, 256 * MIB, 48 * MIB),
        # What experiments without the set take of the disk.
        "own_bytes": (12 * GIB, 10 * GIB, GIB),
        # Of made-up machines: the length of each, packages of the template, and packages that come later. Shorter
        # file systems have smaller blocks.
        "made_bytes": (512 * MIB, 512 * MIB, 512 * MIB),
        "made_packages": (100, 50, 4),
        "new_packages": (100, 50, 4),
    },
    # bench/files.py: the sharing of guest files.
    "files": {
        "rounds": (2, 1, 1),
        "run_seconds": (7200, 900, 1e6),
        # As in the FBS paper, and as in its Figure 4.
        "machines": (42, 6, 2),
        # The disk on which a row's file system is made; more where the images need more.
        "device_bytes": (6 * GIB, 4 * GIB, GIB),
        # How many machines a new one comes to, and what they have besides the template.
        "common_machines": ((10, 200), (5, 50), (2, 3)),
        "common_packages": (20, 20, 4),
        # Of the file that a guest writes to beside a pass.
        "waits_bytes": (256 * MIB, 128 * MIB, 16 * MIB),
        # Images with very many files, of which there are 50 in each package.
        "many_images": (1000, 100, 3),
        "many_packages": (2000, 400, 4),
        "many_image_bytes": (3 * GIB, GIB, 512 * MIB),
        "many_device_bytes": (6 * GIB, 4 * GIB, GIB),
        "many_memory": (256 * MIB, 256 * MIB, 256 * MIB),
        # Of made-up machines and images, as for bench/fbs.py.
        "own_bytes": (12 * GIB, 10 * GIB, GIB),
        "made_bytes": (512 * MIB, 512 * MIB, 512 * MIB),
        "made_packages": (100, 50, 4),
        "new_packages": (100, 50, 4),
        # What the real images beside the bare calls may take together.
        "images_bytes_max": (2700 * MIB, 2700 * MIB, 0),
    },
    # bench/images.py: archives.
    "images": {
        "rounds": (5, 1, 1),
        "run_seconds": (5400, 200, 1e6),
        # How often one image is captured, each time after its guest has changed so many files.
        "versions": (10, 3, 3),
        "version_files": (400, 100, 2),
        # Made-up images beside a collection, and what each has that no other has before it. Shorter files than these
        # would not be taken for images.
        "many_images": (1000, 100, 20),
        "many_units": (10_000, 10_000, 1000),
        # Whether other programs are measured with their defaults only.
        "defaults_only": (False, True, True),
        # What a run takes of the disk; with some of the rows, or beside other programs' defaults only.
        "disk_bytes": (24 * GIB, 9 * GIB, GIB),
        "part_disk_bytes": (12 * GIB, 9 * GIB, GIB),
        # Of images that are made up.
        "made_bytes": (64 * MIB, 64 * MIB, 64 * MIB),
        "made_packages": (4, 4, 4),
    },
    # bench/serve.py: served images.
    "serve": {
        "rounds": (5, 1, 1),
        "run_seconds": (3600, 180, 1e6),
        # Of the files of the image, and of the one that does not compress.
        "image_bytes": (256 * MIB, 96 * MIB, 12 * MIB),
        "noise_bytes": (512 * MIB, 64 * MIB, 4 * MIB),
        "short_bytes": (64 * MIB, 16 * MIB, 2 * MIB),
        # Links: of one machine or two, of many, a slow one where a run is killed, a narrow one. Two cores must not be
        # the limit where many machines receive.
        "link_bits": (1_000_000_000, 1_000_000_000, 500_000_000),
        "many_bits": (100_000_000, 100_000_000, 100_000_000),
        "slow_bits": (200_000_000, 100_000_000, 10_000_000),
        "narrow_bits": (100_000_000, 100_000_000, 50_000_000),
        # The rate at which processor time is compared.
        "cpu_bits": (400_000_000, 400_000_000, 200_000_000),
        # How many machines there are at once, at most, and in the measurement of the paper.
        "clients": (16, 8, 3),
        "client_counts": ((1, 8, 16), (1, 4), (1, 2)),
        # How many there are in one process, without a network.
        "simulated_machines": (1000, 1000, 100),
        # Of 4 KiB.
        "raw_requests": (2000, 500, 50),
        "disk_bytes": (12 * GIB, 4 * GIB, GIB),
    },
}

# What no table can hold, as each program's arguments say it, with what there is without them.
CHOSEN = {
    # A real disk image, if there is one that fits, and where a recorded boot is kept for the next run.
    "run": {"image": None, "records": None},
    "scale": {},
    # Real images, where there are some.
    "share": {"images": ()},
    # Those, a desktop's if there is one, and the program.
    "guest": {"images": (), "desktop": None, "onefold": None},
    "paper": {"index_bits": PAPER_INDEX_BITS, "tag_bits": PAPER_TAG_BITS},
    "fbs": {},
    "files": {"images": ()},
    # Whether the program reads images of archives wherever it reads disks, and whether it has a collection.
    "images": {"archived_sources": False, "collects": False},
    "serve": {},
}


class Sizes(NamedTuple):
    """A program's settings: objects with an attribute for each line of its table, and `mode`."""

    full: object
    quick: object
    tiny: object


def sizes_of(program):
    """Returns the `Sizes` of a program. `dataclasses.replace` makes other settings of them."""
    table, chosen = TABLE[program], CHOSEN[program]
    kind = make_dataclass(f"{program.title()}Settings", ["mode", *table, *chosen], frozen=True)
    columns = zip(*table.values(), strict=True)
    return Sizes(*(kind(mode, *column, *chosen.values()) for mode, column in zip(Sizes._fields, columns, strict=True)))


RUN, SCALE, SHARE, GUEST, PAPER, FBS, FILES, IMAGES, SERVE = map(sizes_of, TABLE)
