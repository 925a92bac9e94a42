"""Hosts in QEMU that share one raw disk with OCFS2 on it, and programs on them.

Everything runs in the network and process namespaces that run.sh has made for it: when that ends, nothing is left.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = "/mnt/shared"
DEVICE = "/dev/sda"
HOSTS_MAX = 4
# Software emulation on a busy machine: most of these are never reached.
BOOT_S = 400
MOUNT_S = 120
CALL_S = 120
BRIDGE = "cluster"

# Sharing blocks needs reference counts, those need extended attributes. A file that is stored within its inode cannot be
# shared into. Clusters as large as blocks: larger ones are shared as a whole after a part of them was compared.
FORMAT = (
    "-b 4096 -C 4096 -J size=16M --fs-feature-level=max-features "
    "--fs-features=refcount,xattr,unwritten,sparse,metaecc,indexed-dirs,append-dio,noinline-data,nousrquota,nogrpquota "
    f"-N {HOSTS_MAX} -L onefold --cluster-stack=o2cb --cluster-name=onefold"
)


class Failed(Exception):
    """The cluster does not do what it must."""


class Refused(Exception):
    """A call on a host failed. `name` is the error's, like EAGAIN."""

    def __init__(self, call, name, text):
        super().__init__(f"{call}: {name} ({text})")
        self.name = name


def run_quietly(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class Cluster:
    def __init__(self, folder, image, sockets, memory_mib=768, disk_mib=4096):
        self.folder = folder
        self.image = image
        self.memory_mib = memory_mib
        self.disk_mib = disk_mib
        self.disk = os.path.join(folder, "shared.disk")
        # What hosts see as /host.
        self.share = os.path.join(folder, "share")
        self.sockets = sockets
        self.hosts = {}

    def host(self, number):
        return self.hosts[number]

    def prepare(self):
        """Makes the network, the shared folder and an empty disk."""
        os.makedirs(self.share, exist_ok=True)
        for name in os.listdir(os.path.join(HERE, "guest")):
            if name.endswith(".py"):
                self.push(os.path.join(HERE, "guest", name))
        with open(self.disk, "wb") as disk:
            disk.truncate(self.disk_mib << 20)
        run_quietly("ip", "link", "set", "lo", "up")
        run_quietly("ip", "link", "add", BRIDGE, "type", "bridge")
        run_quietly("ip", "address", "add", "10.77.0.254/24", "dev", BRIDGE)
        run_quietly("ip", "link", "set", BRIDGE, "up")
        for number in range(1, HOSTS_MAX + 1):
            tap = f"tap{number}"
            run_quietly("ip", "tuntap", "add", "dev", tap, "mode", "tap")
            run_quietly("ip", "link", "set", tap, "master", BRIDGE, "up")

    def push(self, path, name=None):
        """Gives a file to all hosts, as /host/NAME."""
        name = name or os.path.basename(path)
        shutil.copy(path, os.path.join(self.share, name + ".new"))
        os.rename(os.path.join(self.share, name + ".new"), os.path.join(self.share, name))

    def up(self, count):
        """Boots hosts 1 to COUNT, makes the file system and mounts it on each of them."""
        for number in range(1, count + 1):
            self.hosts[number] = Host(self, number)
            self.hosts[number].start()
        for host in self.hosts.values():
            host.wait_up()
        self.host(1).run(f"echo y | mkfs.ocfs2 {FORMAT} {DEVICE} 2>&1", MOUNT_S)
        for host in self.hosts.values():
            host.mount()

    def down(self):
        """Ends all hosts. The disk is not needed any more, so nothing is unmounted."""
        for host in self.hosts.values():
            host.kill()


class Host:
    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.process = None
        self.boots = 0
        self.socket = os.path.join(cluster.sockets, f"host{number}")
        self.console = os.path.join(cluster.folder, f"host{number}.console")
        self.hands = []

    def __str__(self):
        return f"host {self.number}"

    # Power.

    def start(self):
        cluster, number = self.cluster, self.number
        self.boots += 1
        self.started = time.monotonic()
        if os.path.exists(self.console):
            os.rename(self.console, f"{self.console}.{self.boots - 1}")
        # Busy machines make the guests' own clocks go wrong by a factor when they are measured at boot, and with them all
        # timeouts of the cluster. HPET goes by QEMU's clock and is not measured.
        kernel = (
            "console=ttyS0 quiet loglevel=4 mitigations=off nokaslr audit=0 random.trust_cpu=on tsc=unstable "
            f"clocksource=hpet nolapic_timer lpj=4000000 host={number} hosts={HOSTS_MAX}"
        )
        # Each host writes its heartbeat into a sector of its own: with sectors of 512 bytes, neighbours would be in one
        # block of the disk below and be written over. A killed QEMU leaves what it wrote to the machine it ran on, so a
        # flush has nothing to do.
        disk = f"file={cluster.disk},format=raw,if=none,id=shared,cache=unsafe,aio=threads,discard=unmap,file.locking=off"
        command = ["qemu-system-x86_64", "-name", f"host{number}", "-accel", "tcg,thread=single,tb-size=128"]
        command += ["-cpu", "max", "-smp", "1", "-m", str(cluster.memory_mib), "-nodefaults", "-no-user-config"]
        command += ["-display", "none", "-no-reboot", "-append", kernel]
        command += ["-kernel", os.path.join(cluster.image, "kernel"), "-initrd", os.path.join(cluster.image, "root")]
        command += ["-serial", f"file:{self.console}", "-device", "virtio-scsi-pci", "-drive", disk, "-device"]
        command += ["scsi-hd,drive=shared,share-rw=on,serial=SHARED,logical_block_size=4096,physical_block_size=4096"]
        command += ["-netdev", f"tap,id=net,ifname=tap{number},script=no,downscript=no"]
        command += ["-device", f"virtio-net-pci,netdev=net,mac=52:54:00:77:00:{number:02x}", "-device", "virtio-rng-pci"]
        command += ["-virtfs", f"local,path={cluster.share},mount_tag=host,security_model=none,multidevs=remap"]
        with open(os.path.join(cluster.folder, f"host{number}.qemu"), "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_up(self):
        ends = time.monotonic() + BOOT_S
        ready = f"host {self.number} is up".encode()
        while not (os.path.exists(self.console) and ready in open(self.console, "rb").read()):
            self.must_run()
            if time.monotonic() > ends:
                raise Failed(f"{self} is not up after {BOOT_S} s, see {self.console}")
            time.sleep(0.2)
        while self.ssh("true", timeout=60).returncode != 0:
            self.must_run()
            if time.monotonic() > ends:
                raise Failed(f"{self} cannot be reached after {BOOT_S} s")
            time.sleep(0.5)
        self.boot_s = time.monotonic() - self.started

    def must_run(self):
        if self.process.poll() is not None:
            raise Failed(f"QEMU of {self} has ended with {self.process.returncode}, see {self.cluster.folder}")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def ends_within(self, seconds):
        """Tells whether the host ends by itself."""
        ends = time.monotonic() + seconds
        while self.is_running() and time.monotonic() < ends:
            time.sleep(0.2)
        return not self.is_running()

    def kill(self):
        """Cuts the power."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.forget()

    def forget(self):
        """Ends what is connected to a host that is gone."""
        self.hands = []
        if os.path.exists(self.socket):
            exits = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={self.socket}", "-O", "exit", "host"]
            subprocess.run(exits, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)
            # What was connected removes it, too, as it ends.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.socket)

    def restart(self):
        self.start()
        self.wait_up()
        self.mount()

    # Programs.

    def ssh_command(self, command):
        # One connection for all: to make one takes an emulated host a second.
        options = ["IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=30"]
        options += ["ControlMaster=auto", "ControlPersist=600", f"ControlPath={self.socket}", "LogLevel=ERROR"]
        flags = [part for option in options for part in ("-o", option)]
        key = os.path.join(self.cluster.image, "key")
        return ["ssh", "-F", "/dev/null", "-i", key, *flags, f"root@10.77.0.{self.number}", command]

    def ssh(self, command, timeout=CALL_S):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        try:
            # A session of its own: Ctrl-C is for run.py.
            return subprocess.run(self.ssh_command(command), timeout=timeout, start_new_session=True, **pipes)
        except subprocess.TimeoutExpired as expired:
            said = (expired.stdout or b"").decode(errors="replace")
            raise Failed(f"{self}: not done within {timeout} s: {command}\n{said}") from None

    def run(self, command, timeout=CALL_S):
        """Returns what a command prints, which must succeed."""
        done = self.ssh(command, timeout)
        if done.returncode != 0:
            raise Failed(f"{self}: exit code {done.returncode}: {command}\n{done.stdout}")
        return done.stdout

    def spawn(self, command, log):
        """Starts a command in the background, with what it says in a file of the state folder."""
        with open(os.path.join(self.cluster.folder, log), "ab") as file:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            return subprocess.Popen(self.ssh_command(command), start_new_session=True, **pipes)

    def mount(self, *options):
        """Mounts the shared disk, with more options than the usual ones if there are any."""
        options = ",".join(["noatime", "coherency=full", "nointr", *options])
        self.run(f"mount -t ocfs2 -o {options} {DEVICE} {SHARED}", MOUNT_S)

    def unmount(self):
        self.run(f"umount {SHARED}", MOUNT_S)

    def hand(self):
        """A process on the host that makes calls one by one as it is told."""
        hand = Hand(self)
        self.hands.append(hand)
        return hand


class Hand:
    """Calls of guest/hand.py: `hand.flock("file", wait=False)`. `start` and `finish` make one in two parts."""

    def __init__(self, host):
        self.host = host
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        command = host.ssh_command("exec python3 -B /host/hand.py")
        self.process = subprocess.Popen(command, start_new_session=True, **pipes)
        self.call_name = None

    def __getattr__(self, name):
        def call(*arguments, timeout=CALL_S, **named):
            self.start(name, *arguments, **named)
            return self.finish(timeout)

        return call

    def start(self, name, *arguments, **named):
        self.call_name = name
        self.process.stdin.write(json.dumps([name, arguments, named]) + "\n")
        self.process.stdin.flush()

    def is_done(self, timeout):
        """Whether the call that was started has ended."""
        return bool(select.select([self.process.stdout], [], [], timeout)[0])

    def finish(self, timeout=CALL_S):
        if not self.is_done(timeout):
            raise Failed(f"{self.host}: not done within {timeout} s: {self.call_name}")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{self.host}: gone in the middle of {self.call_name}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(self.call_name, answer["error"], answer["text"])
        return answer["result"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.stdin.close()
        self.process.wait(timeout=20)
