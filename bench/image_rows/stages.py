"""Where the processor time of captures goes, by `perf record` with call stacks."""

from guest_rows.programs import warm
from lib import system
from lib.measure import Sample
from lib.profile import why_no_samples
from lib.rows.beside import ONEFOLD

from .images import DERIVED, missing_of
from .row import ImageRow
from .stored import smaller

SAMPLES_PER_SECOND = 199
SECONDS = 1 / SAMPLES_PER_SECOND
# Enough for the deepest reader of a guest.
STACK_BYTES = 16384
# Names of functions by stage. The first stage of which any function is on a stack has the sample: what a guest's reader
# reads is the guest map's, and what the writer hands to a store is written.
STAGES = {
    "compress": ("ZSTD", "HUF_", "FSE_", "XXH64", "zstd"),
    "hash": ("blake3",),
    # The disk as the threads of a capture read it.
    "read": ("unread::ReadDisk", "batch::Reader::read"),
    "guest map": ("onefold_guest::", "capture::plan", "capture::policy", "capture::unread::Unread"),
    "write": ("archive::writer", "archive::puts", "capture::collector", "store::folder", "format::pack::PackBuilder"),
    "look up": ("archive::index", "archive::tables", "archive::units", "archive::snapshot", "archive::segment"),
}
OTHER = "other"
# Functions in which the capture runs: without any of them on a stack, the program is stripped.
KNOWN = "onefold"


class StagesRow(ImageRow):
    """All images of the set, captured one after the other into a new archive."""

    name = "stages"
    sides = (ONEFOLD,)
    rounds_max = 1

    def make_lines(self, settings):
        for stage in (*STAGES, OTHER):
            title = f"processor time to capture the derived set: {stage}"
            yield smaller(key_of(stage), title, "s", None, None)

    def missing(self, settings):
        return missing_of(DERIVED, settings) or why_no_samples()

    def measure(self, images, settings, round_no):
        folder, onefold = images.new_folder("stages"), images.programs.onefold
        archive, samples = folder / "archive", folder / "perf.data"
        system.run(onefold, "archive", "create", "--quiet", archive)
        seconds = dict.fromkeys((*STAGES, OTHER), 0.0)
        for image in images.of(DERIVED):
            warm(image)
            record = ("perf", "record", f"--freq={SAMPLES_PER_SECOND}", f"--call-graph=dwarf,{STACK_BYTES}")
            capture = (onefold, "image", "capture", "--quiet", archive, image, image.stem)
            system.run(*record, "--output", samples, *capture)
            said = system.run("perf", "script", "--no-inline", "--fields", "comm,ip,sym", "--input", samples).text
            for stage, count in counts(stacks(said)).items():
                seconds[stage] += count * SECONDS
        for stage, value in seconds.items():
            yield key_of(stage), ONEFOLD, Sample(value)


def key_of(stage):
    return f"stages-{stage.replace(' ', '-')}"


def stacks(said):
    """Yields the functions of each sample, the innermost first, of what `perf script` says."""
    for sample in said.split("\n\n"):
        # The first line is the program's name, in others a place stands before the function.
        parts = (line.split(None, 1) for line in sample.strip("\n").split("\n")[1:])
        functions = [words[1] for words in parts if len(words) == 2]
        if functions:
            yield functions


def counts(sampled):
    """Returns how many samples each stage has. Raises BenchError where no sample is known to be the program's."""
    found, is_known = dict.fromkeys((*STAGES, OTHER), 0), False
    for functions in sampled:
        found[stage_of(functions)] += 1
        is_known = is_known or any(KNOWN in function for function in functions)
    if not is_known:
        raise system.BenchError("perf names no function of onefold: is the program stripped?")
    return found


def stage_of(functions):
    """Returns the stage that a stack belongs to."""
    for stage, names in STAGES.items():
        if any(name in function for function in functions for name in names):
            return stage
    return OTHER
