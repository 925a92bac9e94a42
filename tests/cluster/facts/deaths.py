"""What a host that loses power leaves of its shares, and of their times."""

import re
import time

from cluster import Failed

from .trial import fact, places


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
