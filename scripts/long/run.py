#!/usr/bin/env python3
"""Runs all long targets within a time, goes on after a failure, and can write what came out into docs/reliability.md.

    run.py [--hours N] [--seed N] [--record] [TARGET...]

A target is a call of `target.sh NAME`, which ends with its verdict. Each gets its share (SHARES) of the time that is
left when its turn comes: what one leaves over goes to those after it. A target that takes much longer is ended, and has
failed. What targets say is shown, and kept in target/long/NAME.log.

Exit codes: 0 all targets passed, 1 one has failed, 2 wrong usage, 130 and 143 interrupted.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
DOCUMENT = REPOSITORY / "docs" / "reliability.md"

# The targets in the order of their turns, and each one's share of the time: minutes, where there are four hours. The
# first two take the time that they take, and the others make up for it.
SHARES = {
    "test-cluster": 50,
    "posix": 25,
    "soak": 15,
    "kill": 15,
    "crash": 15,
    "damage": 10,
    "races": 10,
    "sim": 10,
    "sim-images": 10,
    "fuzz": 15,
    "test-guest": 20,
    "test-files": 20,
    "test-images": 15,
    "test-serve": 10,
}
SECONDS_MIN = 60
# How much longer than its share a target may take: what is larger.
GRACE_S = 600
GRACE_PART = 0.5
# How long a target that is ended may take to clear up.
CLEAR_UP_S = 60

VERDICT = re.compile(r"^(?P<name>[a-z-]+): (?P<result>passed|failed), seed (?P<seed>\S+), (?P<counts>\S.*)$")
BEGIN = "<!-- long runs: `make long` writes what is between these two lines -->"
END = "<!-- end of long runs -->"
HEAD = ["| target | verdict | tried | seed | minutes | commit |", "|---|---|---|---|---|---|"]


@dataclass
class Result:
    """What came out of one target."""

    name: str
    passed: bool
    # What was tried, or why nothing is known of it.
    counts: str
    seed: str
    seconds: float

    def line(self):
        """The verdict of the target as seen from here, in the form of its own."""
        return f"{self.name}: {self.word()}, seed {self.seed}, {self.counts}"

    def word(self):
        return "passed" if self.passed else "failed"

    def row(self, commit):
        verdict = "passed" if self.passed else "**failed**"
        counts = self.counts.replace("|", "/")
        return f"| `{self.name}` | {verdict} | {counts} | {self.seed} | {self.seconds / 60:.0f} | {commit} |"


def seconds_for(name, names, left_s):
    """Returns the seconds for the target `name`, where `names` are those to come, with itself, in `left_s` seconds."""
    return max(SECONDS_MIN, int(left_s * SHARES[name] / sum(SHARES[other] for other in names)))


def judge(name, said, code, seed, seconds):
    """Returns what came out of a target that said these lines and ended with this exit code."""
    verdicts = [match for match in map(VERDICT.match, said) if match and match["name"] == name]
    if not verdicts:
        return Result(name, False, f"no verdict, exit code {code}", str(seed), seconds)
    verdict = verdicts[-1]
    passed = verdict["result"] == "passed" and code == 0
    counts = verdict["counts"]
    if verdict["result"] == "passed" and not passed:
        counts += f", exit code {code}"
    return Result(name, passed, counts, verdict["seed"], seconds)


class Runner:
    """Runs targets one after another: `program` with a target's name. `grace_s` goes before GRACE_S and its part."""

    def __init__(self, program, logs, seed, grace_s=None):
        self.program, self.logs, self.seed, self.grace_s = program, Path(logs), seed, grace_s
        self.process = None

    def run(self, name, seconds):
        """Runs one target and returns its result."""
        grace_s = max(GRACE_S, seconds * GRACE_PART) if self.grace_s is None else self.grace_s
        environment = {**os.environ, "ONEFOLD_SEED": str(self.seed), "LONG_SECONDS": str(seconds)}
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.logs / f"{name}.log"
        began = time.monotonic()
        with open(log, "w", encoding="utf-8") as file:
            # A session of its own: all of it can be ended at once.
            self.process = subprocess.Popen(
                [self.program, name], env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        is_cut = not self.wait_and_show(log, began + seconds + grace_s)
        if is_cut:
            self.end()
        code = self.process.wait()
        self.process = None
        result = judge(name, read(log).splitlines(), code, self.seed, time.monotonic() - began)
        if is_cut:
            result.passed = False
            result.counts += f"; ended after {seconds + grace_s:.0f} s, it had {seconds} s"
        return result

    def wait_and_show(self, log, deadline):
        """Shows what the target says. Returns whether it ended by itself before the deadline."""
        with open(log, encoding="utf-8", errors="replace") as file:
            while True:
                # Looked at first: what it said before its end is read after that.
                has_ended = self.process.poll() is not None
                for text in iter(lambda: file.read(1 << 16), ""):
                    sys.stdout.write(text)
                sys.stdout.flush()
                if has_ended:
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.1)

    def end(self):
        """Ends the target that runs, if any, with all that it has started."""
        if self.process is None:
            return
        for signal_no in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, signal_no)
                self.process.wait(CLEAR_UP_S)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue


def run_all(runner, names, seconds):
    """Runs the targets within a time, each whatever became of those before it. Returns their results."""
    ends = time.monotonic() + seconds
    results = []
    for index, name in enumerate(names):
        own_s = seconds_for(name, names[index:], ends - time.monotonic())
        print(f"\n==> {name}, {own_s} s (target {index + 1} of {len(names)})", flush=True)
        result = runner.run(name, own_s)
        print(f"==> {result.line()}", flush=True)
        results.append(result)
    return results


def recorded(text, results, commit):
    """Returns the document with these results in its table. Targets that were not run keep their rows."""
    before, rest = text.split(BEGIN + "\n")
    table, after = rest.split(END)
    rows = {match[1]: match[0] for match in re.finditer(r"^\| `([a-z-]+)` \|.*$", table, re.MULTILINE)}
    rows.update({result.name: result.row(commit) for result in results})
    lines = [*HEAD, *(rows[name] for name in SHARES if name in rows)]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after


def read(path):
    return Path(path).read_text(encoding="utf-8", errors="replace")


def commit_of(folder):
    """Returns what is checked out, with a mark where files of it were changed."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def parse(words):
    parser = argparse.ArgumentParser(prog="run.py", description="run all long targets within a time")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(SHARES)}; all unless given")
    parser.add_argument("--hours", type=float, default=4, help="time for all of them")
    parser.add_argument("--seed", type=int, default=None, help="what targets draw from; drawn now unless given")
    parser.add_argument("--record", action="store_true", help="write the results into the document")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help=argparse.SUPPRESS)
    parser.add_argument("--program", type=Path, default=HERE / "target.sh", help=argparse.SUPPRESS)
    parser.add_argument("--logs", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--grace", type=float, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    unknown = [name for name in options.targets if name not in SHARES]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(SHARES)}")
    if options.hours <= 0:
        parser.error("the time is no time")
    if options.record and not all(read(options.document).count(mark) == 1 for mark in (BEGIN + "\n", END)):
        parser.error(f"{options.document} has no place for the table: it is between the lines `{BEGIN}` and `{END}`")
    options.targets = [name for name in SHARES if name in options.targets or not options.targets]
    options.logs = options.logs or Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "long"
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    return options


def main(words=None):
    options = parse(words)
    runner = Runner(options.program, options.logs, options.seed, options.grace)
    for signal_no in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_no, lambda number, _: sys.exit(128 + number))
    # What was there when the run began is what was tried.
    commit = commit_of(REPOSITORY)
    try:
        results = run_all(runner, options.targets, options.hours * 3600)
    finally:
        runner.end()
    if options.record:
        options.document.write_text(recorded(read(options.document), results, commit), encoding="utf-8")
    print()
    for result in results:
        print(result.line())
    failed = [result.name for result in results if not result.passed]
    print(f"long: {len(results) - len(failed)} of {len(results)} targets passed"
          + (f", failed: {', '.join(failed)}; see {options.logs}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
