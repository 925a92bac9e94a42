"""What happens to a guest after it was installed, from a seed: packages come and go, logs grow, people write.

    guest_life.py plan RECIPE SEED          prints the steps of a life, one a line, for age-image.sh
    guest_life.py days ROOT RECIPE COUNT SEED   lets so many days pass in the mounted root

Recipes: `desktop`, a person's; `server`, one of several that get the same packages, each at another time.
"""

import gzip
import os
import random
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent / "packages"
DAY_SECONDS = 86_400
# The first day of every life: 2026-01-05, a Monday.
FIRST_DAY = 1_767_571_200
PAGE_BYTES = 4096

WORDS = """service request user session connection started stopped failed accepted closed from to port with error timeout
report meeting budget project schedule customer invoice contract the a of and for on in by is was are please find attached
quarter result plan review draft final version change number table figure page section network update kernel device""".split()


def main(words):
    match words:
        case ["plan", recipe, seed]:
            print("\n".join(plan(recipe, seed)))
        case ["days", root, recipe, count, seed]:
            Life(Path(root), recipe, seed).pass_days(int(count))
        case _:
            sys.exit(f"usage:{__doc__.split('.', 1)[1]}")


def packages_of(name):
    """Returns the names in a package set, in its order."""
    lines = (PACKAGES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def plan(recipe, seed):
    """Returns steps: `days N`, `install PACKAGE...`, `remove PACKAGE...`, `upgrade`, `clean`."""
    dice = random.Random(f"plan/{recipe}/{seed}")
    return {"desktop": desktop_plan, "server": server_plan}[recipe](dice)


def desktop_plan(dice):
    wanted = packages_of("additions")
    dice.shuffle(wanted)
    wanted = wanted[: dice.randint(4, 6)]
    steps = [f"install {package}" for package in wanted]
    # What was tried and not liked goes again.
    for package in dice.sample(wanted, dice.randint(1, 2)):
        steps.insert(dice.randint(steps.index(f"install {package}") + 1, len(steps)), f"remove {package}")
    for step in ["upgrade", *["clean"] * dice.randint(0, 2)]:
        steps.insert(dice.randint(0, len(steps)), step)
    return with_days(steps, dice)


def server_plan(dice):
    services = packages_of("services")
    # The same in the same order, in parts.
    parts = [services[at : at + 3] for at in range(0, len(services), 3)]
    return with_days([f"install {' '.join(part)}" for part in parts], dice)


def with_days(steps, dice):
    """Lets days pass before, between and after the steps."""
    lived = [f"days {dice.randint(3, 25)}"]
    for step in steps:
        lived += [step, f"days {dice.randint(1, 20)}"]
    return lived


@dataclass
class Life:
    """Days in a guest. Its seed and the number of the day decide all that happens on it."""

    root: Path
    recipe: str
    seed: str

    def pass_days(self, count):
        counter = self.root / "var/lib/days"
        first = int(counter.read_text(encoding="ascii")) if counter.exists() else 0
        for day in range(first, first + count):
            self.pass_day(day, random.Random(f"day/{self.recipe}/{self.seed}/{day}"))
        counter.write_text(str(first + count), encoding="ascii")

    def pass_day(self, day, dice):
        now = FIRST_DAY + day * DAY_SECONDS
        self.write_logs(day, dice)
        if self.recipe == "desktop":
            self.write_documents(now, day, dice)
            self.browse(now, dice)
        else:
            self.change_records(now, dice)

    def write_logs(self, day, dice):
        for name in ["syslog", "auth.log", "daemon.log"]:
            write_log(self.root / "var/log" / name, FIRST_DAY + day * DAY_SECONDS, dice)
            if day % 7 == 0:
                rotate(self.root / "var/log" / name)

    def write_documents(self, now, day, dice):
        folder = self.root / "home/user/Documents"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(dice.randint(0, 4)):
            place(folder / f"report-{day}-{number}{dice.choice(['.txt', '.odt'])}", None, now, dice)
        # What everybody in the house was sent.
        if dice.random() < 0.4:
            number = dice.randrange(200)
            place(folder / f"circular-{number}.odt", random.Random(f"circular/{number}"), now, dice)
        there = sorted(folder.iterdir())
        for old in dice.sample(there, min(len(there), dice.randint(0, 2))):
            # As editors save: a new file under the old name.
            draft = old.with_name(".draft")
            place(draft, None, now, dice)
            draft.rename(old)
        if len(there) > 30 and dice.random() < 0.5:
            dice.choice(there).unlink()

    def browse(self, now, dice):
        folder = self.root / "home/user/.cache/browser"
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(dice.randint(10, 60)):
            path = folder / f"{dice.getrandbits(64):016x}"
            path.write_bytes(dice.randbytes(dice.randint(500, 60_000)))
            os.utime(path, (now, now))
        cached = sorted(folder.iterdir())
        for path in dice.sample(cached, max(0, len(cached) - 1500)):
            path.unlink()

    def change_records(self, now, dice):
        path = self.root / "var/lib/records"
        if not path.exists():
            # All servers were given the same records to begin with.
            path.write_bytes(random.Random("records").randbytes(32 << 20))
        pages = path.stat().st_size // PAGE_BYTES
        with path.open("r+b") as file:
            for _ in range(dice.randint(20, 200)):
                file.seek(dice.randrange(pages) * PAGE_BYTES)
                file.write(dice.randbytes(PAGE_BYTES))
            file.seek(0, os.SEEK_END)
            file.write(dice.randbytes(PAGE_BYTES * dice.randint(0, 20)))
        os.utime(path, (now, now))


def sentence(dice):
    return " ".join(dice.choices(WORDS, k=dice.randint(5, 14)))


def write_log(path, now, dice):
    with path.open("a", encoding="ascii") as file:
        for _ in range(dice.randint(50, 900)):
            file.write(f"{now + dice.randrange(DAY_SECONDS)} host {dice.choice(WORDS)}[{dice.randrange(9999)}]: ")
            file.write(f"{sentence(dice)} {dice.getrandbits(32):08x}\n")
    os.utime(path, (now, now))


def rotate(path):
    """Moves logs on as logrotate does: the last as it is, three more compressed."""
    for number in [3, 2]:
        older = path.with_name(f"{path.name}.{number}.gz")
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}.gz"))
    last = path.with_name(f"{path.name}.1")
    if last.exists():
        compressed = path.with_name(f"{path.name}.2.gz")
        compressed.write_bytes(gzip.compress(last.read_bytes(), mtime=0))
    if path.exists():
        path.rename(last)


def place(path, content_dice, now, dice):
    """Writes a document: text, or what offices make of it, which is compressed."""
    drawn = content_dice or dice
    text = "\n".join(sentence(drawn) for _ in range(drawn.randint(50, 800))).encode("ascii")
    if path.suffix == ".odt":
        # Pictures take most of the room in most documents.
        text = zlib.compress(text) + drawn.randbytes(drawn.randint(0, 400_000))
    path.write_bytes(text)
    os.utime(path, (now, now))


if __name__ == "__main__":
    main(sys.argv[1:])
