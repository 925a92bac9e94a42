"""How fast a server makes chunks, and how soon the last one begins to come."""

import http.client
import statistics
import time
from urllib.parse import urlsplit

from image_rows.line import ImageLine
from image_rows.stored import smaller
from lib import caches
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, alternating
from lib.system import BenchError

from .images import WEB
from .machines import server
from .row import ServeRow

GIB, MILLISECONDS = 1 << 30, 1000
# How many servers are asked in a round: the time of one is short.
SERVERS = 5
AT_SERVE, RECOMPRESS = "headers at serve", "recompressed"


class ChunksRow(ServeRow):
    """Chunks on one thread, in order and at random, without HTTP."""

    name = "chunks"

    def make_lines(self, settings):
        title = "chunks built on one core, in order, packs in the page cache"
        yield ImageLine("chunks-order", title, "GiB/s", bound=1.0, aim=2.5)
        yield smaller("chunks-warm", "99 of 100 chunks, at random, packs in the page cache: within", "ms", 5, 2)
        yield smaller("chunks-cold", "the same, packs on the disk", "ms", 40, 15)

    def measure(self, images, settings, round_no):
        # The list reads all packs.
        images.list_of(WEB)
        found = images.chunk_speed(WEB, "order")
        yield "chunks-order", ONEFOLD, Sample(found["bytes"] / GIB / found["seconds"], more=found)
        found = images.chunk_speed(WEB, "random")
        yield "chunks-warm", ONEFOLD, Sample(found["p99_seconds"] * MILLISECONDS, more=found)
        caches.forget_all(images.archive)
        found = images.chunk_speed(WEB, "random")
        yield "chunks-cold", ONEFOLD, Sample(found["p99_seconds"] * MILLISECONDS, more=found)


class LastChunkRow(ServeRow):
    """The first byte of the last chunk of an image, from a server that has just begun."""

    name = "last-chunk"
    sides = (ONEFOLD, AT_SERVE, RECOMPRESS)

    def make_lines(self, settings):
        title = "first byte of the last chunk"
        yield smaller("last-chunk", title, "ms", 1 / 20, 1 / 100, beside="`--headers at-serve`")
        yield smaller("last-chunk-recompress", "the same", "ms", None, None, beside="`--chunks recompress`")

    def measure(self, images, settings, round_no):
        last = images.list_of(WEB)["last"]
        ways = (
            (ONEFOLD, (), ("last-chunk", "last-chunk-recompress")),
            (AT_SERVE, ("--headers", "at-serve"), ("last-chunk",)),
            (RECOMPRESS, ("--chunks", "recompress"), ("last-chunk-recompress",)),
        )
        for side, options, keys in alternating(round_no, *ways):
            seconds = []
            for _ in range(SERVERS):
                with server(images, options=options) as serving:
                    seconds.append(first_byte_seconds(serving.address, f"/v1/chunks/{last}"))
            for key in keys:
                yield key, side, Sample(statistics.median(seconds) * MILLISECONDS, more={"seconds": seconds})


def first_byte_seconds(address, path):
    """Returns how long the first byte of an answer takes, on a connection that is there."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    try:
        connection.connect()
        started = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read(1)
        seconds = time.perf_counter() - started
        answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise BenchError(f"the server answers {answer.status} to {path}")
    return seconds
