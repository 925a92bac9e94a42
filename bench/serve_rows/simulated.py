"""What a thousand machines cost a sender, beside sixteen: state machines in one process, over a simulated network."""

import json

from image_rows.stored import smaller
from lib import system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD

from .row import ServeRow

PROGRAM = "multicast_load"
SIXTEEN = "sixteen machines"
LOSS_OF_MILLION = 10_000


class SimulatedRow(ServeRow):
    """Requests and processor time of a sender."""

    name = "simulated"
    sides = (ONEFOLD, SIXTEEN)

    def make_lines(self, settings):
        machines = f"{settings.simulated_machines:,} simulated machines that lose 1 %"
        title = f"requests a second at the server, {machines}"
        yield smaller("simulated-requests", title, "per s", 1.5, 1.2, beside=SIXTEEN)
        title = f"processor time a second of the sender's decisions and repairs, {machines}"
        yield smaller("simulated-cpu", title, "ms", 1.5, 1.2, beside=SIXTEEN)
        title = f"time until the last one has all, {machines}"
        yield smaller("simulated-time", title, "s", None, None, beside=SIXTEEN)

    def measure(self, images, settings, round_no):
        program = images.example(PROGRAM)
        for side, machines in ((ONEFOLD, settings.simulated_machines), (SIXTEEN, 16)):
            told = json.loads(system.run(program, str(machines), str(LOSS_OF_MILLION)).text)
            yield "simulated-requests", side, Sample(told["requests_per_second"], more=told)
            yield "simulated-cpu", side, Sample(1000 * told["sender_seconds"] / told["seconds"], more=told)
            yield "simulated-time", side, Sample(told["seconds"])
