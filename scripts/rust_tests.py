#!/usr/bin/env python3
"""Builds all test programs, or runs what was built: several at once, where `cargo test` runs one after another.

    rust_tests.py build          builds them; their list goes to target/rust-tests/programs.json
    rust_tests.py run [--jobs N] runs them, those that take long first; N at once (one for each processor)

Most programs wait for disks, mounts and clocks half of their time. Each runs as cargo runs it, in the folder of its
package, and needs no lock of cargo's, so that something else may build meanwhile. What it says is shown in one piece
when it has ended, without the tests that passed; all of it is kept in target/rust-tests/.

Exit codes: 0 all passed, 1 a program has failed, 2 wrong usage.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
FOLDER = TARGET / "rust-tests"
LIST = FOLDER / "programs.json"

# Features are added to the whole workspace: for one package alone, what it depends on would be built anew with other
# features.
BUILDS = [
    # Not the examples: lints look whether they compile.
    ["--workspace", "--lib", "--bins", "--tests"],
    ["--workspace", "--features", "onefold-pool/explore", "--test", "schedules"],
]
# Programs that take long, the longest first, so that the last ones end together. The others are short.
LONG = [
    "onefold-share/linux", "onefold-pool/schedules", "onefold-share/simulation", "onefold-pool/crash",
    "onefold/escapes", "onefold-hostile/seeded", "onefold/offline", "onefold-pool/check_memory", "onefold-pool/check",
    "onefold-export/ending", "onefold-hostile/corpus", "onefold-pool/hosts", "onefold-disk", "onefold-export/control",
    "onefold-export/mixed_caching", "onefold-pool",
]  # fmt: skip
# Lines of the test harness that say nothing new.
USUAL = re.compile(r"^(test .* \.\.\. ok|running \d+ tests?|)$")


def programs_of(messages):
    """Returns name, path and folder of each test program that cargo's messages tell of."""
    for message in messages:
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        if not message["profile"]["test"]:
            continue
        folder = Path(message["manifest_path"]).parent
        target = message["target"]
        name = folder.name
        if target["kind"] == ["test"]:
            name += "/" + target["name"]
        elif target["kind"] == ["bin"]:
            name += "/bin-" + target["name"]
        yield {"name": name, "path": message["executable"], "folder": str(folder)}


def build():
    FOLDER.mkdir(parents=True, exist_ok=True)
    programs = []
    for flags in BUILDS:
        command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics", *flags]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            return 1
        programs += programs_of(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    LIST.write_text(json.dumps(programs, indent=1), encoding="utf-8")
    print(f"{len(programs)} test programs are built")
    return 0


class Runner:
    """Runs programs beside each other, and ends them all when it is told to."""

    def __init__(self):
        self.lock = threading.Lock()
        self.processes = set()
        self.is_over = False

    def run(self, program):
        """Runs one and shows what it said. Returns whether it passed."""
        log = FOLDER / (program["name"].replace("/", "-") + ".log")
        began = time.monotonic()
        with open(log, "wb") as file:
            with self.lock:
                if self.is_over:
                    return False
                environment = {**os.environ, "CARGO_MANIFEST_DIR": program["folder"]}
                process = subprocess.Popen(
                    [program["path"]], cwd=program["folder"], env=environment, stdin=subprocess.DEVNULL, stdout=file,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                self.processes.add(process)
            _, status, usage = os.wait4(process.pid, 0)
        # A negative one is the number of the signal.
        code = process.returncode = os.waitstatus_to_exitcode(status)
        took = f"{time.monotonic() - began:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} s of processors"
        with self.lock:
            self.processes.remove(process)
            if not self.is_over:
                self.show(program["name"], code, took, log)
        return code == 0

    @staticmethod
    def show(name, code, took, log):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(f"{'ok  ' if code == 0 else 'FAIL'}  {name}, {took}" + ("" if code == 0 else f", exit code {code}"))
        for line in lines:
            if not USUAL.match(line):
                print(f"      {line}")
        sys.stdout.flush()

    def end(self):
        with self.lock:
            self.is_over = True
            for process in self.processes:
                # Of a program that has just ended there is no group any more.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def in_order(programs):
    """Returns the programs, those that take long first."""
    places = {name: place for place, name in enumerate(LONG)}
    return sorted(programs, key=lambda program: places.get(program["name"], len(places)))


def run(jobs):
    if not LIST.exists():
        sys.exit(f"error: nothing was built\n  hint: {sys.argv[0]} build")
    programs = in_order(json.loads(LIST.read_text(encoding="utf-8")))
    runner = Runner()

    def stop(number, _):
        # All ends now, whatever still waits for its turn.
        runner.end()
        os._exit(128 + number)

    for signal_no in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_no, stop)
    with ThreadPoolExecutor(jobs) as pool:
        passed = list(pool.map(runner.run, programs))
    failed = [program["name"] for program, is_well in zip(programs, passed) if not is_well]
    tells = f", failed: {', '.join(failed)}" if failed else ""
    print(f"{len(programs) - len(failed)} of {len(programs)} test programs passed{tells}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description="build and run the Rust tests")
    parser.add_argument("verb", choices=["build", "run"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="programs at once")
    options = parser.parse_args()
    return build() if options.verb == "build" else run(max(1, options.jobs))


if __name__ == "__main__":
    sys.exit(main())
