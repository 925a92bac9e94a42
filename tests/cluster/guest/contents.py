"""Contents that name themselves: a block is its number, again and again. Number 0 is zeros, which is what a hole reads as."""

import array

BLOCK_BYTES = 4096
NUMBER_BYTES = 8
# What a block is that holds no number: parts of several, or a flipped bit.
TORN = -1


def render(numbers):
    """The bytes of blocks with these numbers."""
    return b"".join(number.to_bytes(NUMBER_BYTES, "little") * (BLOCK_BYTES // NUMBER_BYTES) for number in numbers)


def parse(data):
    """The numbers of blocks, `TORN` where there is none."""
    found = []
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        head = block[:NUMBER_BYTES]
        is_whole = block == head * (BLOCK_BYTES // NUMBER_BYTES)
        found.append(int.from_bytes(head, "little") if is_whole else TORN)
    return found


def runs(numbers):
    """Consecutive numbers as [first, count]: a file of a gigabyte is told in a line. Zeros are runs, too."""
    told = []
    for number in numbers:
        if told:
            first, count = told[-1]
            if number == (first + count if first > 0 else first):
                told[-1][1] += 1
                continue
        told.append([number, 1])
    return told


def unfold(told):
    """What `runs` has folded."""
    found = array.array("q")
    for first, count in told:
        found.extend(range(first, first + count) if first > 0 else [first] * count)
    return found
