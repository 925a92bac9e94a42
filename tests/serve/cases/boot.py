"""A disk that was installed under loss boots."""

from programs import HERE, call, run
from service import expect_equal

BOOT = HERE.parents[1] / "scripts" / "boot-image.sh"
BOOT_S = 900


def boot(lab, folder, _dice):
    """Debian 12 that was installed on two machines at once, each of which lost 2 % of all packets, boots in QEMU."""
    lab.capture(lab.bootable, "debian")
    exported = folder / "exported"
    call(lab.onefold, "image", "export", "--quiet", lab.archive, "debian", exported, timeout=BOOT_S)
    with lab.served(folder, server_mbit=1000, rate="40M") as site:
        machines = site.machines(2, 1000)
        for machine in machines:
            machine.lose(2)
        clients = site.start(machines, "debian")
        for client in clients:
            client.result(300)
            # Sectors that are free in the image are zeros in a new file, and in an export.
            expect_equal(client.target, exported)
        lab.counts["disks"] += len(clients)
        command = (BOOT, "--snapshot", "--timeout", BOOT_S, clients[0].target)
        # An emulated kernel that a busy machine starves panics: it has a second try.
        if run(command, timeout=BOOT_S + 120).returncode != 0:
            call(*command, timeout=BOOT_S + 120)
        lab.counts["boots"] += 1
