"""An archive in a bucket beside one in a folder. The bucket is that of a node of Ceph on loopback."""

import json

from guest_rows.programs import warm
from lib import caches, system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, alternating, lacking
from lib.runner import say
from lib.system import BenchError

from .gateway import BUCKET, PROGRAMS, Gateway
from .images import DERIVED, expect_equal, missing_of
from .line import ImageLine
from .row import ImageRow
from .sides import Onefold
from .speed import rate
from .stored import smaller

GIB = 1 << 30
FOLDER = "folder"
# What would have a program sign otherwise, or look elsewhere.
FOREIGN = (
    "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3",
)  # fmt: skip


class BucketRow(ImageRow):
    """The first image of the set, captured into an empty archive in a bucket and installed from it."""

    name = "s3"
    sides = (ONEFOLD, FOLDER)
    share_of_time = 2.0
    # Ceph alone takes half a minute to start.
    in_quick = False

    def make_lines(self, settings):
        beside = "the folder store"
        title = "capture to S3 (RGW, loopback), warm"
        yield ImageLine("s3-capture", title, "MiB/s", bound=0.6, aim=0.85, beside=beside)
        yield ImageLine("s3-install", "install from it", "MiB/s", bound=0.6, aim=0.9, beside=beside)
        yield smaller("s3-puts", "PUTs of a first capture, for each GiB stored", "requests", 80, 40)
        yield smaller("s3-gets", "GETs to install a first image, for each GiB stored", "requests", 300, 140)

    def missing(self, settings):
        return lacking(PROGRAMS) or missing_of(DERIVED, settings)

    def prepare(self, images, settings):
        super().prepare(images, settings)
        say("  starting Ceph")
        self._gateway = Gateway(images.folder)
        self._gateway.start()
        if self._gateway.requests_since(0)["PUT"] != 1:
            raise BenchError("the gateway's log does not tell of the bucket that was made")

    def measure(self, images, settings, round_no):
        image, targets = images.of(DERIVED)[0], []
        bucket = BucketSide(images.programs, self._gateway, round_no)
        for name, side in alternating(round_no, (ONEFOLD, bucket), (FOLDER, Onefold(images.programs))):
            folder, target = images.new_folder(f"{name}.turn"), images.folder / f"{name}.target"
            targets.append(target)
            side.create(folder)
            warm(image)
            at_start = self._gateway.log_bytes()
            yield "s3-capture", name, rate(system.stored_bytes(image), side.store(folder, image, "first"))
            captured = self._gateway.log_bytes()
            caches.forget_all(folder)
            yield "s3-install", name, rate(system.stored_bytes(image), side.restore(folder, image, "first", target))
            if name == ONEFOLD:
                puts, gets = self._gateway.requests_since(at_start, captured), self._gateway.requests_since(captured)
                stored = side.archive_bytes()
                for key, method, requests in (("s3-puts", "PUT", puts), ("s3-gets", "GET", gets)):
                    more = {"stored_bytes": stored, "requests": requests}
                    yield key, ONEFOLD, Sample(requests[method] * GIB / stored, more=more)
        expect_equal(*targets)
        for target in targets:
            target.unlink()

    def finish(self, images, settings):
        self._gateway.stop()


class BucketSide(Onefold):
    """An archive below a prefix of its own in the bucket."""

    def __init__(self, programs, gateway, number):
        super().__init__(programs)
        # Nothing in it has to be quoted.
        self.location = f"s3://{BUCKET}/turn-{number}"
        self.words = [f"{name}={value}" for name, value in gateway.environment.items()]
        self.environment = f"unset {' '.join(FOREIGN)}; export {' '.join(self.words)};"
        self.create_script = f"{{onefold}} archive create --quiet {self.location}"
        self.store_script = f"{{onefold}} image capture --quiet {self.location} {{image}} {{name}}"
        self.restore_script = f"{{onefold}} image install --quiet {self.location} {{name}} {{target}}"

    def archive_bytes(self):
        """Returns what the archive has stored."""
        unset = [word for name in FOREIGN for word in ("--unset", name)]
        stat = (self.programs.onefold, "archive", "stat", "--json", self.location)
        return json.loads(system.run("env", *unset, *self.words, *stat).text)["stored_bytes"]
