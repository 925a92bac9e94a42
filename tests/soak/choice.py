"""Chooses what a worker does next: weighted dice that keep the pool as full as it is to be."""

from contents import BLOCK_UNITS

DIRECTORIES = 4
NAMES_EACH = 10
WRITE_BLOCKS_MAX = 64
# Contents that all workers take from: their blocks are shared.
COMMON_BLOCKS = 4000


class Choice:
    def __init__(self, dice, tree, units_max, fresh_block):
        self.dice = dice
        self.tree = tree
        self.units_max = units_max
        self.next_fresh = fresh_block

    def _name(self):
        return f"d{self.dice.randrange(DIRECTORIES)}/f{self.dice.randrange(NAMES_EACH)}"

    def _file(self):
        return self.dice.choice(sorted(self.tree))

    def _runs(self, blocks):
        """Fresh contents, common ones, and zeros."""
        runs = []
        while blocks:
            count = self.dice.randint(1, blocks)
            kind = self.dice.random()
            if kind < 0.6:
                runs.append([self.next_fresh, count])
                self.next_fresh += count
            elif kind < 0.93:
                runs.append([self.dice.randint(1, COMMON_BLOCKS), count])
            else:
                runs.append([0, count])
            blocks -= count
        return runs

    def _place(self, path, is_growing):
        """A place to write at: in the file, or at its end where the pool is to become fuller."""
        units = len(self.tree[path])
        if is_growing and units < self.units_max:
            return units
        at = self.dice.randrange(max(min(units, self.units_max), 1))
        # Half of the writes begin at a block.
        return at // BLOCK_UNITS * BLOCK_UNITS if self.dice.random() < 0.5 else at

    def _write(self, kind, is_growing):
        path = self._file()
        blocks = self.dice.choice([1, 1, 2, 8, WRITE_BLOCKS_MAX] if not is_growing else [16, WRITE_BLOCKS_MAX])
        at = self._place(path, is_growing)
        skip = 0
        if kind == "write direct":
            at = at // BLOCK_UNITS * BLOCK_UNITS
        elif self.dice.random() < 0.3:
            skip = self.dice.randrange(BLOCK_UNITS)
        return {"do": kind, "path": path, "at": at, "runs": self._runs(blocks), "skip": skip}

    def _map(self):
        path = self._file()
        blocks = min(self.dice.choice([1, 2, 8]), len(self.tree[path]) // BLOCK_UNITS)
        if blocks == 0:
            return self._write("write", True)
        at = self.dice.randrange(len(self.tree[path]) - blocks * BLOCK_UNITS + 1)
        return {"do": "map", "path": path, "at": at, "runs": self._runs(blocks)}

    def _copy(self):
        path, source = self._file(), self._file()
        units = len(self.tree[source])
        if path == source or units == 0:
            return self._create(False)
        if self.dice.random() < 0.6:
            # The whole of a file to the start of another: an instant clone.
            start, at, count = 0, 0, units
        else:
            start, at = self.dice.randrange(units), self._place(path, False)
            count = self.dice.randint(1, min(units - start, 2048))
            if self.dice.random() < 0.7:
                start, at = start // BLOCK_UNITS * BLOCK_UNITS, at // BLOCK_UNITS * BLOCK_UNITS
        return {"do": "copy", "path": path, "from": source, "start": start, "at": at, "units": min(count, units - start)}

    def _create(self, is_growing):
        name = self._name()
        if name not in self.tree:
            return {"do": "create", "path": name}
        return self._write("write", True) if is_growing else {"do": "unlink", "path": name}

    def _rename(self):
        path, to = self._file(), self._name()
        return {"do": "rename", "path": path, "to": to} if path != to else {"do": "fsync", "path": path}

    def _truncate(self, is_growing):
        path = self._file()
        units = len(self.tree[path])
        longest = min(units + 64, self.units_max) if is_growing else units
        return {"do": "truncate", "path": path, "units": self.dice.randint(0, longest)}

    def _range(self, kind):
        path = self._file()
        units = len(self.tree[path])
        at = self.dice.randrange(units + 1)
        return {"do": kind, "path": path, "at": at, "units": self.dice.randint(1, max(units // 4, 1))}

    def next(self, is_growing):
        """The next operation. Growing ones are many more where the pool has room, the others where it has not."""
        if len(self.tree) < 3:
            return self._create(True)
        # What makes room takes a whole file at a time: one of it undoes many writes.
        grow, shrink = (40, 0.5) if is_growing else (10, 8)
        kinds = {
            "write": 6 * grow,
            "write sync": grow,
            "write direct": 2 * grow,
            "map": 12,
            "copy": 16,
            "create": 30,
            "rename": 4 * shrink,
            "truncate": 2 * shrink,
            "punch": 4 * shrink,
            "unlink": 2 * shrink,
            "reserve": 4,
            "fsync": 24,
        }
        kind = self.dice.choices(list(kinds), list(kinds.values()))[0]
        if kind.startswith("write"):
            return self._write(kind, is_growing)
        if kind in ("punch", "reserve"):
            return self._range(kind)
        if kind in ("unlink", "fsync"):
            return {"do": kind, "path": self._file()}
        if kind == "truncate":
            return self._truncate(is_growing)
        if kind == "create":
            return self._create(is_growing)
        return {"map": self._map, "copy": self._copy, "rename": self._rename}[kind]()
