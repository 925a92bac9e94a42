"""What Onefold relies on, or must not rely on, on OCFS2 with several hosts: each fact is tried and what was seen is told."""

import re
import time

from cluster import SHARED, Failed, Refused

SHARED_FLAG, UNWRITTEN_FLAG = 0x2000, 0x800
# (12 s without heartbeats, then recovery; emulated, on a busy machine.)
DEATH_S = 150
FACTS = []


def fact(claim):
    """A function that tries the claim. Returns what was seen, and whether the claim holds."""

    def register(function):
        FACTS.append((function.__name__.replace("_", "-"), claim, function))
        return function

    return register


def answer(call, *arguments, **named):
    """What a call says: its result, or the name of its error."""
    try:
        return call(*arguments, **named)
    except Refused as refused:
        return refused.name


def seconds(value):
    return f"{value:.1f} s" if isinstance(value, float) else str(value)


class Trial:
    """One fact's own folder, and hands on the hosts."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.folder = f"{SHARED}/{name}"
        self.hands = {}
        for tries_left in (2, 1, 0):
            try:
                self.first.mkdir(self.folder)
                break
            except Failed:
                # On a busy machine a connection may not come about; nothing was tried yet.
                if tries_left == 0 or not cluster.host(1).is_running():
                    raise
                self.hands.clear()
                time.sleep(2)

    def hand(self, number):
        """The hand on a host. It is made when it is first asked for, and anew after a restart."""
        host = self.cluster.host(number)
        hand, boots = self.hands.get(number, (None, None))
        if boots != host.boots:
            hand = host.hand()
            self.hands[number] = (hand, host.boots)
        return hand

    @property
    def first(self):
        return self.hand(1)

    @property
    def second(self):
        return self.hand(2)

    @property
    def beside(self):
        """A second hand on the first host."""
        if "beside" not in self.hands:
            self.hands["beside"] = (self.cluster.host(1).hand(), None)
        return self.hands["beside"][0]

    def path(self, name):
        return f"{self.folder}/{name}"

    def equal_files(self, *names, blocks):
        """Files that hold the same, made by the first host. Returns its hand, which has them open."""
        for name in names:
            self.first.make(name, self.path(name), [[100, blocks]])
        return self.first

    def end(self):
        for hand, _ in self.hands.values():
            try:
                hand.end()
            except (OSError, ValueError):
                pass


def is_shared(extents):
    return all(flags & SHARED_FLAG for *_, flags in extents)


def places(extents):
    """The place of each block."""
    return {first + at: place + at for first, place, count, _ in extents for at in range(count)}


# Locks.


@fact("flock is the cluster's: another host is kept out, and let in when it is released")
def flock_across(trial):
    first, second = trial.first, trial.second
    first.open("lock", trial.path("lock"))
    second.open("lock", trial.path("lock"))
    first.flock("lock")
    refused = answer(second.flock, "lock")
    second.start("flock", "lock", wait=True)
    waits = not second.is_done(2)
    first.unlock("lock")
    released = time.monotonic()
    second.finish()
    woke = time.monotonic() - released
    back = answer(first.flock, "lock")
    second.unlock("lock")
    shared = answer(first.flock, "lock", shared=True), answer(second.flock, "lock", shared=True)
    seen = f"refused with {refused}, a waiter waits: {waits}, and has it {woke:.2f} s after the release; the first one is then "
    seen += f"refused with {back}; shared locks of both: {all(isinstance(one, float) for one in shared)}"
    return seen, (refused, waits, back) == ("EAGAIN", True, "EAGAIN")


@fact("locks of fcntl are not the cluster's: both hosts get them, those of processes and those of openings")
def fcntl_locks(trial):
    got = {}
    for kind, own_opening in (("process", False), ("opening", True)):
        for hand in (trial.first, trial.second):
            hand.open(kind, trial.path(kind))
            got.setdefault(kind, []).append(answer(hand.lock_range, kind, own_opening=own_opening) or "got it")
    told = "; ".join(f"of a {kind}: {first}, {second}" for kind, (first, second) in got.items())
    return f"first host and second host: {told}", got["opening"] == ["got it"] * 2


@fact("when a host loses power, its flock goes to who waits for it, once the cluster has noticed")
def flock_of_the_dead(trial):
    first, second = trial.first, trial.second
    for hand in (first, second):
        hand.open("lock", trial.path("lock"))
    second.flock("lock")
    first.start("flock", "lock", wait=True)
    if first.is_done(2):
        return "it did not wait", False
    killed = time.monotonic()
    trial.cluster.host(2).kill()
    first.finish(DEATH_S)
    took = time.monotonic() - killed
    trial.cluster.host(2).restart()
    return f"{took:.1f} s after the kill", True


# Sharing.


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


# Leases.


@fact("a write lease is refused while anybody on the same host has the file open, also by a mapping alone")
def leases(trial):
    first, other = trial.equal_files("image", blocks=16), trial.beside
    path = trial.path("image")
    said = {"alone": answer(first.lease, "image", "write") or "granted"}
    first.lease("image", "none")
    for how in ("read", "write", "only write"):
        other.open("image", path, how)
        said[f"open to {how}"] = answer(first.lease, "image", "write") or "granted"
        other.close("image")
    other.map("image", path)
    said["mapped only"] = answer(first.lease, "image", "write") or "granted"
    other.unmap("image")
    first.open("again", path)
    said["open twice by itself"] = answer(first.lease, "image", "write") or "granted"
    first.close("again")
    said["alone again"] = answer(first.lease, "image", "write") or "granted"
    first.close("image")
    first.open("image", path, "read")
    said["by an opening to read only, alone"] = answer(first.lease, "image", "write") or "granted"
    wanted = {key: "granted" if "alone" in key else "EAGAIN" for key in said}
    return "; ".join(f"{key}: {value}" for key, value in said.items()), said == wanted


@fact("who opens a leased file on the same host waits until the lease is given up, and its holder is told")
def lease_breaks(trial):
    first, other = trial.equal_files("image", blocks=16), trial.beside
    path = trial.path("image")
    first.lease("image", "write")
    nonblocking = answer(other.open, "try", path, "write", nonblocking=True)
    first.lease("image", "none")
    first.lease("image", "write")
    before = first.leased("image")
    other.start("open", "image", path, "write")
    waits = not other.is_done(2)
    during, told = first.leased("image"), first.breaks_seen()
    # What the holder does meanwhile goes on.
    first.write("image", 3, [[555, 1]])
    first.make("twin", trial.path("twin"), [[100, 3], [555, 1], [104, 12]])
    shared = answer(first.share, "twin", "image", count=16)
    first.lease("image", "none")
    waited = other.finish()
    read = other.read("image")
    seen = f"opening without waiting: {nonblocking}; F_GETLEASE says {before}, and once somebody wants it {during}; signals: {told}; "
    seen += f"the other one waits: {waits}, {waited:.1f} s in all, meanwhile the holder shared {shared} of 16; it reads {read}"
    return seen, (nonblocking, before, waits, shared) == ("EAGAIN", "write", True, 16) and during != "write"


@fact("a lease that is not given up is taken away after lease-break-time")
def lease_times_out(trial):
    first, other = trial.equal_files("image", blocks=16), trial.beside
    host = trial.cluster.host(1)
    usual = host.run("cat /proc/sys/fs/lease-break-time").strip()
    host.run("echo 5 >/proc/sys/fs/lease-break-time")
    try:
        first.lease("image", "write")
        other.open("image", trial.path("image"), "write")
    finally:
        host.run(f"echo {usual} >/proc/sys/fs/lease-break-time")
    left = first.leased("image")
    return f"{usual} s is usual; with 5 s the other one had it, and F_GETLEASE of the holder said {left}", left == "none"


@fact("a lease knows nothing of other hosts: it is granted while they have the file open, and keeps nobody there from it")
def leases_across(trial):
    first, second = trial.equal_files("image", blocks=16), trial.second
    path = trial.path("image")
    second.open("image", path)
    granted = answer(first.lease, "image", "write") or "granted"
    second.open("again", path, "write")
    second.write("again", 0, [[900, 1]])
    second.fsync("again")
    left, told = first.leased("image"), first.breaks_seen()
    seen = f"with the file open on another host: {granted}; another opening and a write there went through, after which "
    seen += f"F_GETLEASE says {left}, signals: {told}"
    return seen, granted == "granted"


@fact("a loop device over the file keeps a lease from being granted on the same host")
def leases_and_loops(trial):
    first, host = trial.equal_files("image", blocks=256), trial.cluster.host(1)
    path = trial.path("image")
    loop = host.run(f"losetup --find --show {path}").strip()
    busy = answer(first.lease, "image", "write") or "granted"
    host.run(f"losetup --detach {loop}")
    time.sleep(1)
    free = answer(first.lease, "image", "write") or "granted"
    return f"with it: {busy}, without: {free}", (busy, free) == ("EAGAIN", "granted")


# Names and handles.


@fact("name_to_handle_at tells a handle that all hosts agree on, and that no later file has")
def handles(trial):
    first, second = trial.equal_files("file", blocks=1), trial.second
    path = trial.path("file")
    second.open("file", path)
    mine, theirs = first.handle("file"), second.handle("file")
    opened = answer(second.open_by_handle, "by handle", trial.folder, *mine)
    read = second.read("by handle") if opened is None else opened
    inode = first.stat("file")["inode"]
    for hand, names in ((first, ["file"]), (second, ["file", "by handle"])):
        for name in names:
            hand.close(name)
    first.unlink(path)
    stale = answer(second.open_by_handle, "gone", trial.folder, *mine)
    again = None
    for attempt in range(40):
        first.make(f"n{attempt}", trial.path(f"n{attempt}"), [[1, 1]], sync=False)
        if first.stat(f"n{attempt}")["inode"] == inode:
            again = first.handle(f"n{attempt}")
            break
    seen = f"type {mine[0]}, {len(mine[1]) // 2} bytes, equal on both: {mine == theirs}; opened by it elsewhere it reads {read}; "
    seen += f"once removed: {stale}; "
    seen += "its inode number did not come again" if again is None else f"with its inode number again, another handle: {again != mine}"
    return seen, mine == theirs and stale == "ESTALE" and again != mine


@fact("there are no files without names (O_TMPFILE)")
def nameless_files(trial):
    said = answer(trial.first.nameless, trial.folder) or "made"
    return said, said == "EOPNOTSUPP"


@fact("link(2) of one name by two hosts: one of them gets it")
def links(trial):
    won = 0
    for attempt in range(20):
        for number, hand in ((1, trial.first), (2, trial.second)):
            hand.make("file", trial.path(f"mine{number}"), [[number, 1]], sync=False)
            hand.close("file")
        for number, hand in ((1, trial.first), (2, trial.second)):
            hand.start("link", trial.path(f"mine{number}"), trial.path(f"name{attempt}"))
        results = []
        for hand in (trial.first, trial.second):
            try:
                results.append(hand.finish() or "made")
            except Refused as refused:
                results.append(refused.name)
        won += sorted(results) == ["EEXIST", "made"]
    return f"in {won} of 20 rounds one had it and the other one EEXIST", won == 20


@fact("renaming over a name that another host renames over at that moment may fail with EACCES")
def renames(trial):
    times = 300
    for number, hand in ((1, trial.first), (2, trial.second)):
        hand.start("rename_again", trial.folder, f"from{number}", "target", times)
    errors = [hand.finish(400) for hand in (trial.first, trial.second)]
    return f"{times} renames by each of two hosts, errors: {errors[0] or 'none'} and {errors[1] or 'none'}", True


# Durability and death.


def survivors(trial, how, rounds, files=8, blocks=16):
    """How many of the files that host 2 shared, and then made durable in a way, are shared after its death."""
    kept = lost = zeros = 0
    for attempt in range(rounds):
        second = trial.second
        folder = f"{trial.folder}/{how.replace(' ', '-')}{attempt}"
        second.mkdir(folder)
        second.make("source", f"{folder}/source", [[100, blocks]])
        for number in range(files):
            second.make(f"f{number}", f"{folder}/f{number}", [[100, blocks]])
        # In the source's tree, so that the calls that count are all alike.
        second.share("source", "f0", count=blocks)
        second.syncfs("source")
        time.sleep(1)
        for number in range(1, files):
            second.share("source", f"f{number}", count=blocks)
            if how == "fsync of the target":
                second.fsync(f"f{number}")
            elif how == "fdatasync of the target":
                second.fdatasync(f"f{number}")
        if how == "fsync of the source":
            second.fsync("source")
        elif how == "fsync of another file":
            second.make("another", f"{folder}/another", [[5, 1]])
        elif how == "syncfs":
            second.syncfs("source")
        trial.cluster.host(2).kill()
        first = trial.first
        first.open("source", f"{folder}/source", "read")
        first.read("source", 0, 1)
        wanted = places(first.extents("source"))
        for number in range(1, files):
            first.open("file", f"{folder}/f{number}", "read")
            zeros += sum(count for number_, count in first.read("file") if number_ == 0)
            is_kept = places(first.extents("file")) == wanted
            kept, lost = kept + is_kept, lost + (not is_kept)
            first.close("file")
        first.close("source")
        trial.cluster.host(2).restart()
    return kept, lost, zeros


def durable(how, claim):
    def tried(trial):
        kept, lost, zeros = survivors(trial, how, trial.cluster.options.durability_rounds)
        return f"{kept} of {kept + lost} shares were there after the kill; blocks of zeros: {zeros}", zeros == 0

    tried.__name__ = "durable_" + re.sub(r"\W+", "_", how)
    fact(claim)(tried)


durable("nothing", "a share that nothing followed, when its host loses power at once")
durable("fsync of the target", "a share that fsync of the target followed, when its host loses power at once")
durable("fdatasync of the target", "a share that fdatasync of the target followed, when its host loses power at once")
durable("syncfs", "a share that syncfs followed, when its host loses power at once")


@fact("the time of a write past the page cache, and of a clone, is lost with the host, whatever was synced; not once it was set")
def times_of_the_dead(trial):
    second, host = trial.second, trial.cluster.host(2)
    second.make("source", trial.path("source"), [[500, 16]])
    ways = ["write", "direct", "clone", "direct, set", "clone, set"]
    for way in ways:
        second.make(way, trial.path(way), [[100, 16]])
    second.syncfs("source")
    time.sleep(2)
    seen = {}
    for way in ways:
        if way == "write":
            second.write(way, 4, [[700, 2]])
        elif way.startswith("direct"):
            second.write_direct(trial.path(way), 4, [[700, 2]])
        else:
            second.clone("source", way, 4, 4, 2)
        if way.endswith("set"):
            second.set_modified(way, second.stat(way)["mtime"])
        second.fsync(way)
        seen[way] = second.stat(way)["mtime"]
    host.kill()
    first, kept, there, told = trial.first, [], [], []
    for way in ways:
        first.open(way, trial.path(way), "read")
        is_there = first.read(way, 4, 2) != [[104, 2]]
        is_kept = first.stat(way)["mtime"] == seen[way]
        kept.append(is_kept)
        there.append(is_there)
        told.append(f"{way}: {'' if is_there else 'not '}there, time {'kept' if is_kept else 'as before'}")
    return "; ".join(told), all(there) and kept == [True, False, False, True, True]


def die_while_sharing(trial, churn):
    """Hosts 2 and up share all the time and are killed; host 1 reads what they leave."""
    options = trial.cluster.options
    files, blocks, count = 6, 1024, options.danger_blocks
    victims = [number for number in trial.cluster.hosts if number > 1]
    tally = {"kills": 0, "calls": 0, "zeros": 0, "wrong": 0, "hit": 0, "filled": 0, "times": []}
    # When each file was written.
    written = {}
    for number in victims:
        hand, folder = trial.hand(number), f"{trial.folder}/host{number}"
        hand.mkdir(folder)
        for name in ["source0", "source1"] + [f"target{index}" for index in range(files)]:
            hand.make("file", f"{folder}/{name}", [[1000, blocks]])
            if name == "source0":
                hand.open("root", f"{folder}/{name}")
            elif name == "source1":
                # In the same tree, with blocks of its own but for the last.
                hand.clone("root", "file", 0, blocks, 1)
            hand.close("file")
            hand.open("file", f"{folder}/{name}", "read")
            written[folder, name] = hand.stat("file")["mtime"]
            hand.close("file")
        hand.close("root")
    ends = time.monotonic() + options.danger_seconds
    while tally["kills"] < options.danger_kills and time.monotonic() < ends:
        for number in victims:
            note = f"{trial.cluster.share}/calls.{number}"
            open(note, "w", encoding="utf-8").close()
            folder = f"{trial.folder}/host{number}"
            trial.hand(number).start("share_on", f"/host/calls.{number}", folder, files, blocks, count, churn)
        time.sleep(trial.cluster.dice.uniform(3, 9))
        for number in victims:
            if trial.hand(number).is_done(0):
                trial.hand(number).finish()
                raise Failed(f"host {number} has ended to share")
            trial.cluster.host(number).kill()
            tally["kills"] += 1
            with open(f"{trial.cluster.share}/calls.{number}", encoding="utf-8") as note:
                tally["calls"] += int(note.read() or 0)
            trial.cluster.host(number).start()
        for number in victims:
            folder = f"{trial.folder}/host{number}"
            look_at_the_dead(trial.first, folder, files, blocks, written, tally)
        for number in victims:
            trial.cluster.host(number).wait_up()
            trial.cluster.host(number).mount()
    seen = f"{tally['kills']} kills after {tally['calls']} calls of {count} blocks: {tally['hit']} left zeros, {tally['zeros']} blocks "
    seen += f"in all, {tally['filled']} of which FICLONERANGE filled again from another file; blocks with something else: "
    seen += f"{tally['wrong']}; times of files with zeros that had changed: {len(tally['times'])} {'; '.join(tally['times'])}"
    return seen, tally["wrong"] == 0 and tally["filled"] == tally["zeros"] and not tally["times"]


def look_at_the_dead(hand, folder, files, blocks, written, tally):
    """Compares all that a dead host was sharing, and fills what is zeros."""
    wanted, zeros = [[1000, blocks]], 0
    hand.open("source", f"{folder}/source0", "read")
    for index in range(files):
        hand.open("dead", f"{folder}/target{index}")
        found = hand.read("dead", 0, blocks)
        if found != wanted:
            now, before = hand.stat("dead")["mtime"], written[folder, f"target{index}"]
            if now != before:
                tally["times"].append(f"{before} became {now}")
            at = 0
            for number, count in found:
                if number == 0:
                    zeros += count
                    hand.clone("source", "dead", at, at, count)
                    tally["filled"] += count if hand.read("dead", at, count) == [[1000 + at, count]] else 0
                elif number != 1000 + at:
                    tally["wrong"] += count
                at += count
            # The clone's own time would be lost with this host and the next one that dies.
            hand.set_modified("dead", hand.stat("dead")["mtime"])
            hand.fsync("dead")
            written[folder, f"target{index}"] = hand.stat("dead")["mtime"]
        hand.close("dead")
    hand.close("source")
    tally["zeros"] += zeros
    tally["hit"] += zeros > 0


@fact("the danger: a host that loses power while it shares may leave zeros")
def death_while_sharing(trial):
    return die_while_sharing(trial, churn=False)


@fact("the same where the host also syncs another file all the time, as machines do")
def death_while_sharing_and_syncing(trial):
    return die_while_sharing(trial, churn=True)
