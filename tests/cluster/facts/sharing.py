"""What sharing and cloning do, and when the kernel refuses or fails."""

import time

from cluster import Failed

from .trial import SHARED_FLAG, answer, fact, places


@fact("FICLONERANGE has two files refer to the same blocks, and maps say so")
def clone_range(trial):
    first = trial.equal_files("one", blocks=64)
    first.open("two", trial.path("two"))
    first.clone("one", "two", 16, 0, 32)
    one, two = places(first.extents("one")), places(first.extents("two"))
    same = all(two[block] == one[block + 16] for block in range(32))
    read = trial.second.open("two", trial.path("two"), "read") and trial.second.read("two")
    flags = [flags & SHARED_FLAG != 0 for *_, flags in first.extents("one")]
    seen = f"same places: {same}; the other host reads {read}; extents of the source shared or not: {flags}"
    return seen, same and read == [[116, 32]]


@fact("FIDEDUPERANGE shares what is equal, says that the rest differs, and sees what another host has just written")
def share(trial):
    first, second = trial.equal_files("one", "two", blocks=64), trial.second
    done = answer(first.share, "one", "two", count=64)
    same = places(first.extents("one")) == places(first.extents("two"))
    first.make("three", trial.path("three"), [[100, 64]])
    second.open("three", trial.path("three"))
    second.write("three", 7, [[999, 1]])
    differs = answer(first.share, "one", "three", count=64)
    rest = answer(first.share, "one", "three", 8, 8, 56)
    kept = first.read("three")
    seen = f"{done} of 64 blocks done, same places: {same}; with a block that another host has written and not synced: "
    seen += f"{differs}, the rest: {rest}; the file then reads {kept}"
    return seen, (done, same, differs, kept) == (64, True, "differs", [[100, 7], [999, 1], [108, 56]])


@fact("files of different trees of references cannot share; a file joins a tree by its first share, and stays in it")
def trees(trial):
    first = trial.equal_files("a", "b", "c", "d", "e", blocks=16)
    for name in ("a", "b"):
        first.open(f"{name}2", trial.path(f"{name}2"))
        first.clone(name, f"{name}2")
    apart = answer(first.share, "a", "b", count=16)
    cloned = answer(first.clone, "a", "b", 0, 32, 4)
    first.make("seed", trial.path("seed"), [[7, 1]])
    for name in ("c", "d"):
        first.clone("seed", name, 0, 16, 1)
        first.truncate(name, 16)
    joined = answer(first.share, "c", "d", count=16)
    joined_apart = answer(first.share, "c", "a", count=16)
    fresh = answer(first.share, "e", "c", count=16), answer(first.share, "e", "d", count=16)
    first.truncate("a", 0)
    first.write("a", 0, [[100, 16]])
    left = answer(first.share, "c", "a", count=16)
    seen = f"two trees: share {apart}, clone {cloned}; two files that took a block of one seed and were cut behind it: {joined}; "
    seen += f"with a file of another tree: {joined_apart}; a file without a tree with each of the two: {fresh}; "
    seen += f"after the other tree's file was cut to nothing and written anew: {left}"
    return seen, (apart, cloned, joined, joined_apart) == ("EOPNOTSUPP", "EOPNOTSUPP", 16, "EOPNOTSUPP")


@fact("a punched file stays in its tree: an arena file that took a seed's block and gave it back shares with the others")
def trees_after_punching(trial):
    first = trial.first
    first.make("seed", trial.path("seed"), [[7, 1]])
    for name in ("arena0", "arena1"):
        first.open(name, trial.path(name))
        first.clone("seed", name, 0, 0, 1)
        first.punch(name, 0, 1)
    trial.equal_files("image", "other", blocks=16)
    slot0 = answer(first.clone, "image", "arena0", 0, 8, 4) or "cloned"
    slot1 = answer(first.clone, "image", "arena1", 4, 8, 4) or "cloned"
    shares = answer(first.share, "arena0", "other", 8, 0, 4), answer(first.share, "arena1", "other", 8, 4, 4)
    seen = f"an image's blocks into each arena file: {slot0}, {slot1}; another image with slots of both: {shares}"
    return seen, (slot0, slot1, shares) == ("cloned", "cloned", (4, 4))


def clone_parts(trial, whole_first):
    """Host 2 clones the middles of short extents, until the maps of their files have to grow. Tells how far it came."""
    hand, host = trial.second, trial.cluster.host(2)
    hand.make("seed", trial.path("seed"), [[7, 1]])
    for name in ("arena", "scratch"):
        hand.open(name, trial.path(name))
        hand.clone("seed", name, 0, 0, 1)
    slots = 1
    for image, pieces in enumerate((80, 100, 120, 121, 122, 160, 200, 240, 241, 242, 243, 244, 600)):
        hand.open("image", trial.path(f"image{image}"))
        for piece in range(pieces):
            hand.write("image", 4 * piece, [[100, 3]])
        hand.fsync("image")
        extents = len(hand.extents("image"))
        for piece in range(pieces):
            try:
                if whole_first:
                    hand.clone("image", "scratch", 4 * piece, 1, 3)
                    hand.truncate("scratch", 1)
                hand.clone("image", "arena", 4 * piece + 1, slots, 1)
            except Failed:
                if host.ends_within(20):
                    return f"of an image with {extents} extents, {piece} were cloned in part; then the host was gone", False
                raise
            slots += 1
        hand.close("image")
    read = hand.read("arena", 1, slots - 1)
    return f"{slots - 1} extents of {image + 1} images were cloned in part", host.is_running() and read == [[101, 1]] * (slots - 1)


@fact("a fault of the kernel: cloning parts of extents takes the host down when the map of their file has to grow for it")
def parts_of_extents(trial):
    seen, is_well = clone_parts(trial, whole_first=False)
    return seen, not is_well


@fact("it does not where each extent was cloned as a whole before, and that clone dropped")
def whole_extents_first(trial):
    return clone_parts(trial, whole_first=True)

@fact("sharing leaves the times of both files, and all hosts see the same ones to the nanosecond")
def times(trial):
    first, second = trial.equal_files("one", "two", blocks=64), trial.second
    second.open("two", trial.path("two"))
    before, elsewhere = first.stat("two"), second.stat("two")
    time.sleep(1.1)
    first.share("one", "two", count=64)
    first.syncfs("two")
    after, then = first.stat("two"), second.stat("two")
    same = [before[key] == after[key] for key in ("mtime", "ctime")]
    agree = [before["mtime"] == elsewhere["mtime"], after["mtime"] == then["mtime"]]
    first.write("two", 0, [[999, 1]])
    written = first.stat("two")["mtime"] - after["mtime"], second.stat("two")["mtime"] == first.stat("two")["mtime"]
    seen = f"mtime and ctime stay: {same}; hosts agree before and after: {agree}; a write moves mtime by {written[0] / 1e9:.3f} s, "
    seen += f"hosts agree: {written[1]}"
    return seen, all(same + agree) and written[0] > 0 and written[1]


@fact("on a full file system sharing single blocks leaves every block as it was, whatever it says")
def full(trial):
    first, host = trial.first, trial.cluster.host(1)
    seen, is_well = [], True
    host.run("mkdir -p /mnt/full; truncate -s 200M /tmp/full.disk")
    # On one host, in memory: it goes by the same code.
    disk = host.run("losetup --find --show /tmp/full.disk").strip()
    host.run("echo y | mkfs.ocfs2 -M local -b 4096 -C 4096 -J size=4M -N 1 --fs-features=refcount,xattr,sparse,unwritten,"
             f"noinline-data -L full {disk} 2>&1")
    for stride in (2, 1):
        host.run(f"mount -t ocfs2 {disk} /mnt/full")
        first.make("source", "/mnt/full/source", [[1000, 4096]])
        first.make("target", "/mnt/full/target", [[1000, 4096]])
        first.fill("filler", "/mnt/full/filler")
        free = first.blocks_free("/mnt/full")
        tally = first.share_singly("source", "target", 1000, 4096, stride, timeout=400)
        first.close("source")
        first.close("target")
        first.close("filler")
        host.run(f"umount /mnt/full && mount -t ocfs2 {disk} /mnt/full")
        first.open("target", "/mnt/full/target", "read")
        zeros = sum(count for number, count in first.read("target") if number == 0)
        first.close("target")
        host.run("rm /mnt/full/*; umount /mnt/full")
        told = ", ".join(f"{key}: {count}" for key, count in sorted(tally.items()))
        seen.append(f"every {stride}. block, {free} blocks free: {told}; zeros after mounting it anew: {zeros}")
        is_well = is_well and zeros == 0 and not any("zeros" in key or "else" in key for key in tally)
    return "; ".join(seen), is_well
