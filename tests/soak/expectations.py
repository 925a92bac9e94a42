"""What a worker's folder must hold: operations on a naive tree, and the judgement of what is found after a restart.

A tree is a dictionary from path to numbers (`contents.py`). An operation is a dictionary that can be written down as
JSON. Operations are durable in their order: after a crash the folder shows the tree after some whole number of them, not
fewer than were promised. Some reach the pool in pieces, of which a crash may keep only the first ones (`is_piecewise`).
"""

from contents import BLOCK_UNITS, numbers, run, zeros

# What they have returned from is durable, with all before it.
PROMISING = {"fsync", "write sync"}


class Wrong(Exception):
    """The folder holds what it must not."""


def content_of(operation):
    """The numbers that an operation writes."""
    values = numbers()
    for first_block, blocks in operation["runs"]:
        values += run(first_block, blocks)
    skip = operation.get("skip", 0)
    return values[skip:]


def is_piecewise(operation):
    """Whether it is several changes to the pool, so that after a crash each unit may be the old or the new one."""
    if operation["do"] in ("copy", "map", "punch"):
        return True
    # A page that is not wholly covered goes by itself.
    return operation["do"] in ("write", "write sync") and bool(operation["at"] % BLOCK_UNITS or operation["skip"])


def put(file, at, values):
    """Puts values into a file, which grows where they end past its end."""
    if len(file) < at:
        file.extend(zeros(at - len(file)))
    file[at : at + len(values)] = values


def resize(file, units):
    if units < len(file):
        del file[units:]
    else:
        file.extend(zeros(units - len(file)))


def apply(tree, operation, done=None):
    """Does an operation on the tree. `done` is how many units it got through, where that can be fewer than all."""
    kind, path = operation["do"], operation["path"]
    if kind == "create":
        tree[path] = numbers()
    elif kind in ("write", "write sync", "write direct", "map"):
        put(tree[path], operation["at"], content_of(operation)[:done])
    elif kind == "copy":
        source, start = tree[operation["from"]], operation["start"]
        end = start + (operation["units"] if done is None else done)
        put(tree[path], operation["at"], source[start:end])
    elif kind == "truncate":
        resize(tree[path], operation["units"])
    elif kind == "punch":
        at, end = operation["at"], min(operation["at"] + operation["units"], len(tree[path]))
        tree[path][at:end] = zeros(max(end - at, 0))
    elif kind == "unlink":
        del tree[path]
    elif kind == "rename":
        tree[operation["to"]] = tree.pop(path)
    elif kind not in ("fsync", "reserve"):
        raise ValueError(kind)


def is_between(found, before, after, path):
    """Whether a tree is one of two that differ in one file, or has pieces of both in that file."""
    if path not in found or path not in before or path not in after:
        return False
    old, new, seen = before[path], after[path], found[path]
    others = all(found.get(name) == file for name, file in before.items() if name != path)
    if not others or len(found) != len(before) or not min(len(old), len(new)) <= len(seen) <= max(len(old), len(new)):
        return False

    def at(file, index):
        return file[index] if index < len(file) else 0

    return all(number in (at(old, index), at(new, index)) for index, number in enumerate(seen))


def judge(tree, log, promised, found):
    """Finds how many operations of `log` the tree shows that was found; `tree` is the one before them.

    `log` is a list of operations and how far each came (`None`: to its end); `promised` of them must be there. Raises
    `Wrong` where no number of them explains what was found.
    """
    for operation, done in log[:promised]:
        apply(tree, operation, done)
    nearest = difference(tree, found)
    for count, (operation, done) in enumerate(log[promised:], promised):
        if tree == found:
            return count
        path = operation["path"]
        before = dict(tree, **{path: tree[path][:]}) if is_piecewise(operation) else None
        apply(tree, operation, done)
        if before is not None and tree != found and is_between(found, before, tree, path):
            return count
    if tree == found:
        return len(log)
    raise Wrong(
        f"{promised} of {len(log)} operations were promised; after none of those that follow is it what was found.\n"
        f"  after the promised ones: {nearest}\n  after all: {difference(tree, found)}\n  the last promised and what follows:\n"
        + "\n".join(f"    {operation} {done}" for operation, done in log[max(promised - 3, 0) : promised + 20])
    )


def difference(expected, found):
    """The first difference between two trees, in words."""
    for path in sorted(expected.keys() | found.keys()):
        want, have = expected.get(path), found.get(path)
        if want == have:
            continue
        if want is None or have is None:
            return f"`{path}` is {'missing' if have is None else 'too much'}"
        if len(want) != len(have):
            return f"`{path}` has {len(have)} units, expected {len(want)}"
        at = next(at for at in range(len(want)) if want[at] != have[at])
        return f"`{path}` has {have[at]} at unit {at}, expected {want[at]}"
    return "none"
