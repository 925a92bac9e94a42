"""What `analyze --files` costs beside `analyze`."""

from lib import system
from lib.rows.beside import ONEFOLD, OTHER, alternating, lower

from .programs import timed, warm
from .row import GuestRow


class FilesOfAnalysisRow(GuestRow):
    """The same images, with the names of what they share and without."""

    name = "analyze-files"
    share_of_time = 2.0

    def make_lines(self, settings):
        title = "`analyze --files`, warm; at most 1.3 times the time is 0.769x"
        yield lower("analyze-files", title, "s", goal="0.769x / 0.909x", beside="`analyze`")

    def why_not(self, settings):
        if "--files" not in system.run(settings.onefold, "analyze", "--help").text:
            return "this `analyze` has no --files"
        return super().why_not(settings)

    def measure(self, images, settings, round_no):
        several = settings.images or (images.image,)
        for image in several:
            warm(image)
        words = (images.programs.onefold, "analyze", "--quiet")
        commands = ((ONEFOLD, (*words, "--files", *several)), (OTHER, (*words, *several)))
        for side, command in alternating(round_no, *commands):
            yield "analyze-files", side, timed(*command).sample()
