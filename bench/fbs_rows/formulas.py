"""The formulas of the paper's tables 3, 4 and 5, as printed, and the numbers of blocks that the formats need.

All are of blocks of 4 KiB. An inode takes 128 bytes in the paper; 256 are usual today.
"""

BLOCK_BYTES = 4096
INODE_BYTES = 128
POINTERS = BLOCK_BYTES // 4
DIRECT = 12
# Last blocks that the inode, the indirect, the double and the triple indirect block lead to.
SINGLE_MAX = DIRECT + POINTERS
DOUBLE_MAX = SINGLE_MAX + POINTERS**2
TRIPLE_MAX = DOUBLE_MAX + POINTERS**3
# Of an inode, and of a block.
EXTENTS_INODE, EXTENTS_BLOCK = 4, 340


def over(amount, unit):
    """Returns the quotient, rounded up."""
    return -(-amount // unit)


def table_3_blocks(blocks):
    """Returns the blocks of metadata beside the inode that Table 3 gives a file of so many blocks."""
    if blocks <= DIRECT:
        return 0
    if blocks <= SINGLE_MAX:
        return 1
    if blocks <= DOUBLE_MAX:
        return 2 + over(blocks - SINGLE_MAX, POINTERS)
    more = blocks - DOUBLE_MAX
    return 1026 + over(more, POINTERS**2) + over(more, POINTERS)


def indirect_blocks(blocks):
    """Returns the indirect blocks that ext2 and ext3 need for a file without holes."""
    if blocks <= DIRECT:
        return 0
    if blocks <= SINGLE_MAX:
        return 1
    if blocks <= DOUBLE_MAX:
        return 2 + over(blocks - SINGLE_MAX, POINTERS)
    more = blocks - DOUBLE_MAX
    # One indirect, a double with all of its 1,024, and a triple with those below it.
    return 1 + (1 + POINTERS) + 1 + over(more, POINTERS**2) + over(more, POINTERS)


def table_4_blocks(runs):
    """Returns the blocks beside the inode that Table 4 gives a file of so many runs."""
    return 0 if runs <= EXTENTS_INODE else 1 + over(runs - EXTENTS_INODE, EXTENTS_BLOCK)


def extent_blocks(runs):
    """Returns the fewest blocks beside the inode that ext4 needs for so many extents: full leaves, and their index."""
    level, found = runs, 0
    while level > EXTENTS_INODE:
        level = over(level, EXTENTS_BLOCK)
        found += level
    return found


def table_5_records(runs):
    """Returns the MFT records that Table 5 gives a file that is not in its record."""
    return 1 if runs <= 30 else over(runs, 30)


def bytes_of(blocks, inode_bytes=INODE_BYTES):
    """Returns bytes of metadata: an inode, and blocks beside it."""
    return inode_bytes + blocks * BLOCK_BYTES
