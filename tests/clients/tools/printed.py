"""Runs the verbs of sharing over images whose names do harm where they are printed: printed.py ONEFOLD FOLDER

The folder lies on a file system whose files can share blocks. Nothing that a run prints may control a terminal, or look
like a line of its own; and the names are there, in a form that is safe.
"""

import os
import signal
import subprocess
import sys
import time
import unicodedata

ONEFOLD, FOLDER = sys.argv[1:]
# A folder, and names of images. See crates/onefold/tests/escapes.rs.
PLACE = os.path.join(os.fsencode(FOLDER), b"images\x1b[1m\n")
NAMES = {
    b"a\x1b]0;title\x07\x1b[2J\x1b[31m.raw": r"a\x1b]0;title\x07\x1b[2J\x1b[31m.raw",
    b"b\nerror: forged\r.raw": r"b\nerror: forged\r.raw",
    "c\u202ewar.d\u2066\u061c.raw".encode(): r"c\u{202e}war.d\u{2066}\u{61c}.raw",
    b"d\xff\x9b31m\xc3.raw": r"d\xff\x9b31m\xc3.raw",
    "e\u009b31m\u0085\x7f\b.raw".encode(): r"e\u{9b}31m\u{85}\x7f\x08.raw",
    "f\u2028error: forged\u200b\ufeff.raw".encode(): r"f\u{2028}error: forged\u{200b}\u{feff}.raw",
}
CONTENT = os.urandom(1 << 20)


def check(arguments, output, expected):
    """Asserts that what was printed is fit for a terminal, and that parts are in it."""
    text = output.decode()
    hidden = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    assert not hidden, f"{arguments} printed {text!r}"
    assert not any(line.lstrip().startswith("error: forged") for line in text.splitlines()), f"{arguments}: {text}"
    for part in expected:
        assert part in text, f"{part} is not in {text}"


def run(arguments, *paths, expected=(), code=0):
    """Runs a verb with and without --json."""
    for form in ([], ["--json"]):
        words = [ONEFOLD, "share", *arguments.split(), *form, *paths]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(words, done.stdout, expected if not form else ())
        assert done.returncode == code, f"{words} ended with {done.returncode}: {done.stdout!r}"


def watch(*flags):
    """Runs a watch until it has shared what appears."""
    words = [ONEFOLD, "share", "watch", "--interval", "200ms", *flags, PLACE]
    watching = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    time.sleep(1)
    for name in NAMES:
        write(b"new-" + name, os.urandom(4096) + CONTENT)
    time.sleep(4)
    watching.send_signal(signal.SIGTERM)
    output, _ = watching.communicate(timeout=30)
    check(words, output, ["passed" if "--json" in flags else "shared"])
    assert watching.returncode == 0, f"{words} ended with {watching.returncode}: {output!r}"


def write(name, content):
    with open(os.path.join(PLACE, name), "wb") as image:
        image.write(content)


os.mkdir(PLACE)
for name in NAMES:
    write(name, CONTENT + name.ljust(4096, b"."))
os.sync()
time.sleep(1)
run("run", PLACE, expected=["freed"])
run("status", PLACE)
run("status --details", PLACE)
run("mend", PLACE)
run("index", PLACE)
for name, shown in NAMES.items():
    image = os.path.join(PLACE, name)
    run("explain", image, expected=[shown])
    run("explain", image, b"4096", expected=[shown])
    # Of the same content, and named with it.
    others = [other for of, other in NAMES.items() if of != name]
    found = subprocess.run([ONEFOLD, "share", "explain", image, "4096"], stdout=subprocess.PIPE).stdout.decode()
    assert any(other in found for other in others), found
    run("exclude", image)
    run("status", image)
    run("include", image)
    for form in ([], ["--json"]):
        clone = os.path.join(PLACE, b"clone-of-" + (b"json-" if form else b"") + name)
        words = [ONEFOLD, "share", "clone", *form, image, clone]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(words, done.stdout, [] if form else ["cloned"])
        assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stdout!r}"
# Images that a run cannot change are named, except the first one, which is the source of the others.
same = os.urandom(1 << 20)
for name in NAMES:
    write(b"fixed-" + name, same)
    subprocess.run(["chattr", "+i", os.path.join(PLACE, b"fixed-" + name)], check=True)
os.sync()
time.sleep(1)
run("run", PLACE, expected=["fixed-" + shown for shown in list(NAMES.values())[1:]])
for name in NAMES:
    subprocess.run(["chattr", "-i", os.path.join(PLACE, b"fixed-" + name)], check=True)
run("files", PLACE)
watch()
watch("--json")
