"""Makes the root of a clone a machine of its own: machine_identity.py ROOT NUMBER

Writes what no two machines of a network have in common: host name, machine id, SSH host keys, an address, and the logs
of some days. The number decides all of it.
"""

import random
import subprocess
import sys
import uuid
from pathlib import Path

from guest_life import Life

# Days that a machine has lived before its packages come.
DAYS = 7
KEYS = ("rsa", "ecdsa", "ed25519")


def main(root, number):
    dice = random.Random(f"machine/{number}")
    name = f"machine-{number:02}"
    write(root, "etc/hostname", f"{name}\n")
    write(root, "etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n10.42.0.{number} {name}.testbed {name}\n")
    write(root, "etc/machine-id", f"{uuid.UUID(int=dice.getrandbits(128), version=4).hex}\n")
    write(root, "etc/systemd/network/10-testbed.network", network(number, dice))
    make_keys(root, name)
    (root / "var/log").mkdir(parents=True, exist_ok=True)
    (root / "var/lib").mkdir(parents=True, exist_ok=True)
    life = Life(root, "desktop", name)
    for day in range(DAYS):
        life.write_logs(day, random.Random(f"day/{name}/{day}"))


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def network(number, dice):
    """Returns the settings of the machine's network card."""
    card = ":".join(["52:54:00", *(f"{dice.randrange(256):02x}" for _ in range(3))])
    return f"[Match]\nMACAddress={card}\n\n[Network]\nAddress=10.42.0.{number}/24\n"


def make_keys(root, name):
    """Makes the host's keys anew. They are no secrets, but no seed decides them: ssh-keygen takes none."""
    folder = root / "etc/ssh"
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KEYS:
        key = folder / f"ssh_host_{kind}_key"
        for path in (key, key.with_name(f"{key.name}.pub")):
            path.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", f"root@{name}", "-f", key], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
