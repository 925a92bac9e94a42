"""What maps of files tell."""

import time

from .trial import SHARED_FLAG, fact, places

UNWRITTEN_FLAG = 0x800


@fact("FIEMAP leaves holes out, and tells what is shared; but it goes on telling so when nobody else refers to it any more")
def maps(trial):
    first = trial.equal_files("file", blocks=32)
    first.punch("file", 4, 4)
    first.allocate("file", 40, 4)
    first.truncate("file", 64)
    first.open("clone", trial.path("clone"))
    first.clone("file", "clone", 8, 0, 4)
    shared = sorted(block for block, *_, in blocks_with(first.extents("file"), SHARED_FLAG))
    unwritten = sorted(block for block, *_ in blocks_with(first.extents("file"), UNWRITTEN_FLAG))
    mapped = set(places(first.extents("file")))
    holes = sorted(set(range(64)) - mapped)
    first.write("clone", 0, [[900, 4]])
    first.fsync("clone")
    after = sorted(block for block, *_ in blocks_with(first.extents("file"), SHARED_FLAG))
    first.close("clone")
    first.unlink(trial.path("clone"))
    first.syncfs("file")
    time.sleep(6)
    removed = sorted(block for block, *_ in blocks_with(first.extents("file"), SHARED_FLAG))
    second = trial.second
    second.open("file", trial.path("file"))
    elsewhere = second.extents("file") == first.extents("file")
    dirty = first.write("file", 50, [[800, 1]]), 50 in places(first.extents("file", sync=False))
    seen = f"shared {span(shared)}, unwritten {span(unwritten)}, holes {span(holes)}; once the clone was written over, shared: "
    seen += f"{span(after)}, and once it was removed: {span(removed)}; the other host sees the same map: {elsewhere}; a block has a place before it is synced: {dirty[1]}"
    wanted = [*range(8, 12)], [*range(40, 44)], [*range(4, 8)], True, [*range(8, 12)]
    return seen, (shared, unwritten, holes[:4], elsewhere, removed) == wanted


def blocks_with(extents, flag):
    return [(first + at, place + at) for first, place, count, flags in extents if flags & flag for at in range(count)]


def span(blocks):
    """Blocks as ranges."""
    ranges = []
    for block in blocks:
        if ranges and ranges[-1][1] + 1 == block:
            ranges[-1][1] = block
        else:
            ranges.append([block, block])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges) or "none"


@fact("a write into a long shared run takes more than its block away from the others")
def writes_into_shared(trial):
    first = trial.equal_files("one", blocks=1024)
    first.open("two", trial.path("two"))
    first.clone("one", "two")
    before = places(first.extents("two"))
    first.write("two", 512, [[999, 1]])
    first.fsync("two")
    after = places(first.extents("two"))
    moved = [block for block in before if before[block] != after[block]]
    return f"one block of 1,024 was written, {len(moved)} have a new place: {span(moved)}", 512 in moved
