"""Leases: the processes that they keep out, and those that are told."""

import time

from .trial import answer, fact


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
