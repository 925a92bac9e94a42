"""Onefold on all hosts at once, beside programs that write, while hosts lose power."""

import collections
import json
import os
import subprocess
import sys
import time

from cluster import HERE, SHARED, Failed

sys.path.insert(0, os.path.join(HERE, "guest"))
from images import IMAGE_BLOCKS, IMAGES
from images import name as image_name

WORK_S = (8, 30)
# For a host to begin to share, when the cut is aimed at that.
AIM_S = 60
# The longest time from there to the cut.
AIMED_S = 0.05
AFTER_S = 20
STOP_S = 240
MEND_S = 300
# Hosts that die for each one whose holes are made: about half of them had declared nothing at that moment.
DEATHS_FOR_HOLES = 4


class Engine:
    def __init__(self, cluster, say):
        self.cluster = cluster
        self.options = cluster.options
        self.dice = cluster.dice
        self.say = say
        self.counts = collections.Counter()
        self.failures = []
        self.errors = collections.Counter()
        # What mending could not make whole.
        self.odd = collections.Counter()
        self.running = {}
        self.consent, self.mends = "", False

    # What is on the hosts.

    def bring_binary(self):
        """Gives hosts the binary with the libraries that it has here, whatever theirs are."""
        binary = os.environ["ONEFOLD"]
        if not os.access(binary, os.X_OK):
            raise Failed(f"there is no binary at {binary}: `make build` makes it, ONEFOLD=path names another")
        listed = subprocess.run(["ldd", binary], check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        libraries = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
        for path in libraries:
            self.cluster.push(path)
        self.cluster.push(binary, "onefold.binary")
        loader = [os.path.basename(path) for path in libraries if "ld-linux" in path]
        begin = f"/tmp/{loader[0]} --library-path /tmp " if loader else ""
        # Run from the host's memory: the shared folder is slow.
        names = " ".join(["onefold.binary", *map(os.path.basename, libraries)])
        with open(os.path.join(self.cluster.share, "install"), "w", encoding="utf-8") as script:
            script.write(f"cd /host && cp {names} /tmp/ && printf '#!/bin/sh\\nexec {begin}/tmp/onefold.binary \"$@\"\\n' "
                         ">/usr/local/bin/onefold && chmod +x /usr/local/bin/onefold /tmp/onefold.binary && onefold --version\n")

    def install(self, number):
        return self.host(number).run("mkdir -p /usr/local/bin /var/tmp; sh /host/install").strip()

    def host(self, number):
        return self.cluster.host(number)

    def writer(self, number, rest):
        return f"python3 -B /host/writer.py {SHARED} {number} {self.options.seed} {rest}"

    def flag(self, name, is_set):
        path = os.path.join(self.cluster.share, name)
        if is_set:
            with open(path, "w", encoding="utf-8"):
                pass
        elif os.path.exists(path):
            os.unlink(path)

    def pass_command(self):
        return f"onefold share run {self.consent} {SHARED}/images".replace("  ", " ")

    # A round.

    def start_passes(self, number):
        log = f"/host/passes{number}"
        # One pass after another until it is told to stop. A line of result each, or why there is none.
        loop = (
            f"while ! [ -e /host/stop ]; do timeout 400 {self.pass_command()} --json "
            f">/tmp/pass 2>/tmp/pass.error; code=$?; echo \"=== pass $code\" >>{log}; cat /tmp/pass /tmp/pass.error >>{log}; sleep 1; done"
        )
        self.running[f"passes on host {number}"] = (number, self.host(number).spawn(loop, f"passes{number}.log"))

    def start_watch(self, number):
        """Has a host share as images change, until it is told to stop, and ends as the service does."""
        log = f"/host/watch{number}"
        options = "--interval 3s --batch 1 --max-wait 3s --json"
        # It is not told to stop before it listens.
        watch = (
            f"onefold share watch {options} {self.consent} {SHARED}/images >>{log} 2>&1 & watch=$!; sleep 3; "
            f"while ! [ -e /host/stop ] && kill -0 $watch 2>/dev/null; do sleep 0.5; done; kill -TERM $watch; wait $watch"
        )
        self.running[f"watch on host {number}"] = (number, self.host(number).spawn(watch, f"watch{number}.log"))

    def start_sharing(self, number, watcher):
        if number == watcher:
            self.start_watch(number)
        else:
            self.start_passes(number)

    def start_writer(self, number, locks):
        command = self.writer(number, "work locks" if locks else "work")
        self.running[f"writer on host {number}"] = (number, self.host(number).spawn(command, f"writer{number}.log"))

    def round(self, index):
        numbers = list(self.cluster.hosts)
        alone = self.dice.choice(numbers) if self.dice.random() < 0.4 else None
        watcher = self.dice.choice(numbers) if alone is None and self.mends else None
        self.flag("stop", False)
        self.flag("hold", False)
        for number in numbers:
            # The passes of other hosts are kept away by locks, those of the own host by leases alone.
            self.start_writer(number, locks=alone != number)
            if alone in (None, number):
                self.start_sharing(number, watcher)
        time.sleep(self.dice.uniform(*WORK_S))
        victim = self.dice.choice(numbers if alone is None else [alone, alone, *numbers])
        self.look()
        is_aimed = alone in (None, victim) and self.dice.random() < 0.8 and self.aim(victim)
        self.host(victim).kill()
        self.counts["kills while sharing"] += is_aimed
        # An administrator who starts machines knows of the death and waits for the mending. Before it, the dead host's locks
        # are not free.
        self.flag("hold", True)
        self.counts["kills"] += 1
        killed = time.monotonic()
        for name in [name for name, (number, _) in self.running.items() if number == victim]:
            self.running.pop(name)[1].wait(timeout=60)
        self.host(victim).restart()
        self.install(victim)
        mended = self.mend(victim)
        back_s = time.monotonic() - killed
        self.check(victim, settles=True)
        self.flag("hold", False)
        self.start_writer(victim, locks=alone != victim)
        if alone in (None, victim):
            self.start_sharing(victim, watcher)
        time.sleep(self.dice.uniform(0, AFTER_S))
        self.stop()
        for number in numbers:
            # Read by another host than the one that wrote.
            self.check(number, settles=False, by=self.dice.choice(numbers))
        self.count_passes()
        self.count_watches()
        kind = "passes on all hosts" if alone is None else f"passes on host {alone} only, whose writer has no locks"
        if watcher is not None:
            kind = f"`share watch` on host {watcher}, passes on the others"
            self.counts["rounds with a watch"] += 1
        self.say(f"round {index}: {kind}; host {victim} lost power and was back after {back_s:.0f} s; mending said: {mended}; "
                 f"so far {self.counts['passes']} passes, wrong blocks {self.counts['wrong']}")

    def make_holes(self):
        """Hosts die until enough of them had declared something. One that had not shows nothing."""
        wanted, made = self.options.holes, 0
        for index in range(1, wanted * DEATHS_FOR_HOLES + 1):
            if made == wanted:
                return
            made += self.holes(index) > 0
        if made == 0 and wanted > 0:
            self.failures.append(f"none of {wanted * DEATHS_FOR_HOLES} dead hosts had declared anything: no hole was made")

    def holes(self, index):
        """Few deaths leave holes: here they are made where a dead host had declared to share, and mended. Returns their bytes."""
        numbers = list(self.cluster.hosts)
        victim = self.dice.choice(numbers)
        other = self.dice.choice([number for number in numbers if number != victim])
        self.flag("hold", False)
        self.flag("stop", False)
        # Something to be shared.
        self.start_writer(victim, locks=True)
        time.sleep(12)
        self.stop()
        self.flag("stop", False)
        self.start_passes(victim)
        is_aimed = self.aim(victim)
        self.host(victim).kill()
        self.counts["kills"] += 1
        self.counts["kills while sharing"] += is_aimed
        for name in list(self.running):
            self.running.pop(name)[1].wait(timeout=60)
        host, intents = self.host(other), f"{SHARED}/.onefold/intents"
        # Waits for the recovery.
        host.run(f"rm -rf /tmp/intents; cp -a {intents} /tmp/intents", MEND_S)
        images = json.loads(host.run(f"onefold share mend --json {SHARED}", MEND_S))["images"]
        self.take_mended(images)
        holed = 0
        hand = host.hand()
        for image in images:
            ranges = [(part["offset"], part["length"]) for part in image["ranges"]][:: self.dice.choice([1, 2])]
            hand.punch_unseen(f"{SHARED}/{image['image']}", ranges)
            holed += sum(length for _, length in ranges)
        hand.end()
        # The comparison must see them, or it would see none.
        owners = {int(image["image"].split("image")[-1].split("-")[0]) for image in images}
        said = [host.ssh(self.writer(owner, "judge"), STOP_S).stdout.splitlines()[-1] for owner in owners]
        seen = sum(json.loads(line).get("zeros", 0) for line in said)
        if seen * 4096 != holed:
            self.failures.append(f"{holed} bytes were made holes by hand, and {seen} blocks were seen to be zeros")
        host.run(f"cp -a /tmp/intents/. {intents}/")
        mended = json.loads(host.run(f"onefold share mend --json {SHARED}", MEND_S))["images"]
        self.take_mended(mended)
        filled = sum(image["filled_bytes"] for image in mended)
        self.counts["bytes made holes by hand"] += holed
        if filled != holed:
            self.failures.append(f"{holed} bytes were made holes by hand, {filled} were filled: {mended}")
        self.host(victim).restart()
        self.install(victim)
        self.check(victim, settles=True)
        for number in numbers:
            self.check(number, settles=False, by=self.dice.choice(numbers))
        self.count_passes()
        became = ", ".join(f"{image['image']} {image['became']}" for image in mended)
        self.say(f"holes {index}: host {victim} lost power{' while it shared' if is_aimed else ''}; {holed} bytes that it had declared "
                 f"were made holes, {seen} blocks were seen as wrong, host {other} filled {filled} bytes: {became}; wrong blocks {self.counts['wrong']}")
        return holed

    def aim(self, victim):
        """Waits until the host has declared what it shares. Returns whether it has."""
        mark = os.path.join(self.cluster.share, f"aimed{victim}")
        if os.path.exists(mark):
            os.unlink(mark)
        watcher = self.host(victim).spawn(f"python3 -B /host/aim.py {SHARED} /host/aimed{victim} {AIMED_S}", f"aim{victim}.log")
        self.running[f"aim on host {victim}"] = (victim, watcher)
        ends = time.monotonic() + AIM_S
        while not os.path.exists(mark):
            if time.monotonic() > ends:
                return False
            time.sleep(0.005)
        return True

    def take_mended(self, document):
        """Counts what became of images that a death may have left with holes."""
        for image in document:
            self.counts[f"images mended: {image['became']}"] += 1
            self.counts["bytes filled"] += image["filled_bytes"]
            if image["became"] not in ("whole", "gone", "busy", "elsewhere"):
                self.odd[f"{image['became']} {image.get('why') or ''}"] += 1

    def look(self):
        """Whatever is to run does run."""
        for name, (number, process) in self.running.items():
            if process.poll() is not None:
                raise Failed(f"{name} has ended with {process.returncode}, see {self.cluster.folder}")
            if not self.host(number).is_running():
                raise Failed(f"host {number} is gone by itself, see its console")

    def mend(self, number):
        """Has a host mend until nothing is left. Returns what it said."""
        if not self.mends:
            return "nothing, for this build does not mend"
        ends, said = time.monotonic() + MEND_S, []
        while True:
            done = self.host(number).ssh(f"timeout 200 onefold share mend --json {SHARED}", 240)
            try:
                images = json.loads(done.stdout)["images"]
            except (ValueError, KeyError):
                images, text = [], " ".join(done.stdout.split())
            else:
                text = ", ".join(f"{image['became']} {image['filled_bytes']}" for image in images)
            self.take_mended(images)
            if text and text not in said:
                said.append(text)
            if done.returncode == 0:
                return "; ".join(said)[:600] or "nothing was left to mend"
            if time.monotonic() > ends:
                self.failures.append(f"mending did not end: {said}")
                return f"FAILED: {said}"
            time.sleep(2)

    def stop(self):
        self.flag("stop", True)
        for name, (number, process) in list(self.running.items()):
            try:
                code = process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                raise Failed(f"{name} does not end") from None
            del self.running[name]
            if name.startswith("writer"):
                self.take_counts(f"writer{number}.log", name, code)
            elif name.startswith("watch") and code != 0:
                self.failures.append(f"{name} ended with exit code {code}, see share/watch{number}")

    def take_counts(self, log, name, code):
        with open(os.path.join(self.cluster.folder, log), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.judge_output(lines, name, code)

    def judge_output(self, lines, name, code):
        wrong = [line for line in lines if line.startswith("WRONG")]
        try:
            counts = json.loads(lines[-1])
        except (ValueError, IndexError):
            raise Failed(f"{name} ended with {code}: {' / '.join(lines[-5:])}") from None
        longest = max(self.counts["longest wait ms"], counts.pop("longest wait ms", 0))
        self.counts.update(counts)
        self.counts["longest wait ms"] = longest
        if code != 0 or wrong and counts.get("wrong"):
            self.failures.append(f"{name}: {counts.get('wrong')} wrong blocks, {counts.get('zeros', 0)} of them zeros: {wrong[-5:]}")

    def check(self, number, settles, by=None):
        """Compares all images of a host."""
        command = self.writer(number, "judge settle" if settles else "judge")
        done = self.host(by or number).ssh(command, STOP_S)
        self.judge_output(done.stdout.splitlines(), f"images of host {number}", done.returncode)

    def count_passes(self):
        for number in self.cluster.hosts:
            path = os.path.join(self.cluster.share, f"passes{number}")
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
            os.rename(path, os.path.join(self.cluster.folder, f"passes{number}.{self.counts['kills']}"))
            for part in text.split("=== pass ")[1:]:
                code, _, rest = part.partition("\n")
                if code == "0":
                    self.counts["passes"] += 1
                    document = json.JSONDecoder().raw_decode(rest)[0]
                    self.take_mended(document.get("mended", []))
                    self.counts["shared: now_bytes"] += document["shared"]["now_bytes"]
                else:
                    self.counts["passes that failed"] += 1
                    self.errors[f"exit {code}: {' '.join(rest.split())[-300:]}"] += 1

    def count_watches(self):
        for number in self.cluster.hosts:
            path = os.path.join(self.cluster.share, f"watch{number}")
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
            os.rename(path, os.path.join(self.cluster.folder, f"watch{number}.{self.counts['kills']}"))
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    # The line that a power cut ended, or what is no event.
                    self.errors[f"watch: {line[:300]}"] += 1
                    continue
                if event["event"] == "mended":
                    self.take_mended(event["images"])
                self.counts[f"watch: {event['event']}"] += 1

    def free_blocks(self):
        self.host(1).run("sync")
        return int(self.host(1).run(f"stat -f -c %f {SHARED}"))

    def used_blocks(self):
        return int(self.host(1).run(f"stat -f -c %b {SHARED}")) - self.free_blocks()

    def run(self):
        """Returns whether all was well; None where this build cannot share here."""
        self.bring_binary()
        versions = {self.install(number) for number in self.cluster.hosts}
        self.say(f"engine: {', '.join(versions)}")
        self.consent = "--accept-mending" if "--accept-mending" in self.host(1).ssh("onefold share run --help").stdout else ""
        self.mends = self.host(1).ssh("onefold share mend --help").returncode == 0
        self.host(1).run(f"mkdir -p {SHARED}/images")
        tried = self.host(1).ssh(self.pass_command())
        if tried.returncode != 0:
            self.say(f"engine: not tried, for this build refuses: {' '.join(tried.stdout.split())}")
            return None
        self.try_local_locks()
        empty = self.used_blocks()
        for number in self.cluster.hosts:
            self.host(number).run(self.writer(number, "make"), 600)
        before = self.used_blocks() - empty
        first = self.host(1).run(self.pass_command(), 600)
        after = self.used_blocks() - empty
        # Hosts set room aside for what they write next, so only differences say something.
        self.say(f"engine: {len(self.cluster.hosts)} hosts with {IMAGES} images of {IMAGE_BLOCKS * 4 // 1024} MiB each; one pass gave "
                 f"{(before - after) * 4 / 1024:.1f} MiB back, less Onefold's own records. It said: {' | '.join(' '.join(line.split()) for line in first.splitlines())}")
        for number in self.cluster.hosts:
            self.check(number, settles=False)
        started = time.monotonic()
        for index in range(1, self.options.rounds + 1):
            if time.monotonic() - started > self.options.engine_seconds:
                break
            self.round(index)
            self.counts["rounds"] += 1
            if self.counts["wrong"]:
                break
        if self.mends:
            self.make_holes()
        self.finish(empty)
        return not self.failures

    def try_local_locks(self):
        """A host whose file locks no other host sees is refused."""
        host = self.host(2)
        host.unmount()
        host.mount("localflocks")
        tried = host.ssh(self.pass_command())
        host.unmount()
        host.mount()
        if tried.returncode == 0 or "localflocks" not in tried.stdout:
            self.failures.append(f"with localflocks, a pass ended with {tried.returncode}: {' '.join(tried.stdout.split())}")
        self.counts["refusals of local locks"] += 1

    def clone(self):
        """Each host clones an image of another one, which a third compares."""
        numbers = list(self.cluster.hosts)
        self.host(1).run(f"mkdir -p {SHARED}/clones")
        for number, owner, third in zip(numbers, numbers[1:] + numbers[:1], numbers[2:] + numbers[:2]):
            image, clone = f"{SHARED}/images/{image_name(owner, 0)}", f"{SHARED}/clones/{number}"
            self.host(number).run(f"onefold share clone --quiet {image} {clone}")
            if self.host(third).ssh(f"cmp {image} {clone}").returncode != 0:
                self.failures.append(f"host {number} cloned {image}, and {clone} is not the same")
            self.counts["clones"] += 1
        self.host(1).run(f"rm -r {SHARED}/clones")

    def finish(self, empty):
        """All is at rest: passes until nothing more comes of them, and the last comparison."""
        for number in self.cluster.hosts:
            self.mend(number)
        before = self.used_blocks() - empty
        for number in [*self.cluster.hosts] * 2:
            self.host(number).run(self.pass_command(), 600)
            self.counts["passes"] += 1
        after = self.used_blocks() - empty
        for number in self.cluster.hosts:
            self.check(number, settles=False, by=self.dice.choice(list(self.cluster.hosts)))
        self.clone()
        self.say(f"engine: at rest, two passes of each host gave {(before - after) * 4 / 1024:.1f} MiB back")
        self.host(1).run(f"rm -r {SHARED}/images; sync")
        for number in self.cluster.hosts:
            # What only the arena still refers to is given back.
            self.host(number).run(f"mkdir -p {SHARED}/images; {self.pass_command()}", 600)
        arena = int(self.host(1).run(f"du -s -k {SHARED}/.onefold/arena | cut -f 1"))
        self.say(f"engine: all images were removed; after a pass of each host, arena files hold {arena / 1024:.1f} MiB that nobody else has")
        for name, count in sorted(self.errors.items(), key=lambda item: -item[1]):
            self.say(f"engine: {count} passes ended so: {name}")
        for name, count in self.odd.items():
            self.say(f"engine: {count} images were not made whole by a mending: {name}")
        for failure in self.failures:
            self.say(f"engine: WRONG: {failure}")
        self.say("engine: " + ", ".join(f"{key} {count}" for key, count in sorted(self.counts.items())))
