"""Names and handles, as several hosts make, move and remove them."""

from cluster import Refused

from .trial import answer, fact


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
