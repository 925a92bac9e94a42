"""Contents that name themselves: a file is a list of numbers, one for each 512 bytes, and any piece of it tells which
number it is and whether a bit of it is wrong.

Number 0 is zeros. Eight consecutive numbers, the first a multiple of eight, make a block: equal numbers at the start of
a block of the pool are an equal block, which the pool is to share.
"""

import array
import random

UNIT_BYTES = 512
BLOCK_UNITS = 8
NUMBER_BYTES = 8

_ZEROS = bytes(UNIT_BYTES)
_NOISE = random.Random(0).randbytes(1 << 20)
_NOISE_PLACES = len(_NOISE) - UNIT_BYTES


class Torn(Exception):
    """Bytes that no number stands for."""


def numbers(values=()):
    """A file's content, as a list of numbers."""
    return array.array("Q", values)


def zeros(units):
    return array.array("Q", [0]) * units


def run(first_block, blocks):
    """The numbers of consecutive blocks. Block 0 is zeros."""
    if first_block == 0:
        return zeros(blocks * BLOCK_UNITS)
    return numbers(range(first_block * BLOCK_UNITS, (first_block + blocks) * BLOCK_UNITS))


def _unit(number):
    if number == 0:
        return _ZEROS
    place = number * 64 % _NOISE_PLACES
    return number.to_bytes(NUMBER_BYTES, "little") + _NOISE[place : place + UNIT_BYTES - NUMBER_BYTES]


def render(values):
    """The bytes that numbers stand for."""
    return b"".join(map(_unit, values))


def parse(data):
    """The numbers that bytes stand for. Raises `Torn` where there is none."""
    if len(data) % UNIT_BYTES:
        raise Torn(f"a length of {len(data)} bytes")
    found = numbers(memoryview(data).cast("Q")[:: UNIT_BYTES // NUMBER_BYTES].tolist() if data else ())
    rendered = render(found)
    if rendered != data:
        at = next(at for at in range(0, len(data), UNIT_BYTES) if rendered[at : at + UNIT_BYTES] != data[at : at + UNIT_BYTES])
        raise Torn(f"at {at}: begins like {found[at // UNIT_BYTES]} and goes on otherwise")
    return found


def distinct_blocks(files):
    """How many different blocks that are not zero the files have, counted naively."""
    seen = set()
    for file in files:
        padded = file + zeros(-len(file) % BLOCK_UNITS)
        raw = padded.tobytes()
        width = BLOCK_UNITS * NUMBER_BYTES
        seen.update(raw[at : at + width] for at in range(0, len(raw), width))
    seen.discard(bytes(BLOCK_UNITS * NUMBER_BYTES))
    return len(seen)
