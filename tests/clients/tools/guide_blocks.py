"""Prints the commands of a page of the guide: what tools/guide_session.sh runs.

    guide_blocks.py PAGE        its steps, as fields that each end with a NUL: line, kind, command, shown output
    guide_blocks.py --pages ROOT    the pages below ROOT that have a block of commands

Every fenced block of a page is run, as it stands there. An HTML comment before a block, which readers do not see, says
otherwise; several may stand there, one a line:

    <!-- not run: REASON -->        nobody runs the block
    <!-- root only: REASON -->      an ordinary user does not run it
    <!-- first: COMMAND -->         the test runs this before the block
    <!-- output of: COMMAND -->     the block is what this command prints
    <!-- runs until stopped -->     each command of the block is interrupted once it works
    <!-- ends with code N: COMMAND -->    the command of the block that begins so ends with this exit code
    <!-- TEXT stands for: COMMAND -->     in the block, TEXT is what this command prints here
    <!-- written to: FILE -->       the block is the content of this file

In a block with `$ ` before its commands, the lines after a command are its output.
"""

import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"^\s*```(\w*)\s*$")
MARK = re.compile(r"^<!-- (.*) -->$")
KINDS = {"not run": "skip", "root only": "root", "first": "first", "output of": "output", "written to": "file"}


class PageError(Exception):
    """A page that the test cannot read."""


def parsed_mark(text):
    """Returns (kind, argument) of a comment that speaks of the next block, or None for any other comment."""
    if text == "runs until stopped":
        return "stop", ""
    name, colon, argument = text.partition(": ")
    if code := re.fullmatch(r"ends with code (\d+)", name):
        return f"code {code[1]}", argument
    if text_stands := re.fullmatch(r"(\S+) stands for", name):
        return f"stands {text_stands[1]}", argument
    if name in KINDS:
        if not colon or not argument.strip():
            raise PageError(f"`{text}` gives no reason or command")
        return KINDS[name], argument
    return None


def blocks(text):
    """Yields (line number, marks, lines) of each fenced block."""
    marks, inside, first, body = [], False, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            if inside:
                yield first, marks, body
                marks = []
            first, body, inside = number + 1, [], not inside
        elif inside:
            body.append(line)
        elif comment := MARK.match(line):
            if mark := parsed_mark(comment[1]):
                marks.append(mark)
        elif line.strip():
            if marks:
                raise PageError(f"line {number}: a mark has to stand right before a block")
    if inside or marks:
        raise PageError("a block does not end, or a mark is before none")


def is_complete(command):
    """Tells whether the shell could run the text: a loop goes on until its `done`."""
    return subprocess.run(["bash", "-n", "-c", command], stderr=subprocess.DEVNULL, check=False).returncode == 0


def commands(first, lines):
    """Yields (line number, command, shown output) of a block."""
    if lines and lines[0].startswith("$ "):
        for number, line in enumerate(lines, first):
            if line.startswith("$ "):
                if number > first:
                    yield start, command, "\n".join(shown)
                start, command, shown = number, line[2:], []
            else:
                shown.append(line)
        yield start, command, "\n".join(shown)
        return
    command, start = "", first
    for number, line in enumerate(lines, first):
        command = f"{command}\n{line}" if command else line
        if is_complete(command):
            if command.strip() and not command.lstrip().startswith("#"):
                yield start, command, ""
            command, start = "", number + 1
    if command:
        raise PageError(f"line {start}: no shell can run `{command}`")


def steps(text):
    """Yields (line number, kind, command, shown output) for all that a page has to run."""
    for line, marks, lines in blocks(text):
        kinds = dict(marks)
        if "skip" in kinds:
            continue
        where = "root" if "root" in kinds else "all"
        for kind, argument in marks:
            if kind == "first":
                yield line, f"{where} first", argument, ""
            elif kind.startswith("stands "):
                yield line, f"{where} stands", argument, kind.removeprefix("stands ")
        if "file" in kinds:
            yield line, f"{where} file", kinds["file"], "\n".join(lines)
            continue
        if "output" in kinds:
            yield line, f"{where} output", kinds["output"], "\n".join(lines)
            continue
        codes = {argument: kind for kind, argument in marks if kind.startswith("code ")}
        for number, command, shown in commands(line, lines):
            code = next((codes.pop(start) for start in list(codes) if command.startswith(start)), None)
            kind = "stop" if "stop" in kinds else code or "run"
            yield number, f"{where} {kind}", command, shown
        if codes:
            raise PageError(f"line {line}: the block has no command `{next(iter(codes))}`")


def main():
    if sys.argv[1] == "--pages":
        root = pathlib.Path(sys.argv[2])
        for page in sorted([root / "README.md", *root.glob("docs/guide/*.md")]):
            if any(True for _ in steps(page.read_text())):
                print(page.relative_to(root))
        return
    for step in steps(pathlib.Path(sys.argv[1]).read_text()):
        sys.stdout.write("".join(f"{field}\0" for field in step))


try:
    main()
except PageError as error:
    sys.exit(f"{sys.argv[-1]}: {error}")
