"""The user that runs the clients."""

import os
import subprocess
import unittest
from unittest import mock

import paths
from lib import launch, system, user
from lib.place import Place
from lib.side import Side

SOMEBODY = user.User(12345, 12346)
TELL = "import os; print(os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups())"
FSETID = 4


class FolderSide(Side):
    """A side that is a folder of its own, with nothing mounted."""

    name = "folder"
    attach = format = unmount = close = disk_read_bytes = crash = recovered = lambda self: None


@unittest.skipUnless(os.geteuid() == 0, "needs root to be others")
class Users(unittest.TestCase):
    def setUp(self):
        self.folder = paths.folder(self)
        self.folder.chmod(0o755)
        self.side = FolderSide(Place(self.folder, SOMEBODY, SOMEBODY.find_python()))
        patch = mock.patch("lib.memory.Ballast.fill")
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_program_runs_as_the_user_and_in_no_group_of_roots(self):
        told = system.run(self.side.place.python, "-c", TELL, user=user.User(12345, 12346, (7,))).text
        self.assertEqual(told.split(), ["12345", "12345", "12346", "12346", "[7]"])

    def test_a_user_has_not_the_right_for_whose_want_the_kernel_flags_each_write(self):
        told = system.run("grep", "CapEff", "/proc/self/status", user=SOMEBODY).text
        self.assertEqual(int(told.split()[1], 16) >> FSETID & 1, 0)

    def test_clients_and_commands_of_a_side_and_their_files_are_the_users(self):
        self.side.mount()
        self.side.client("write", self.side.path("written"), bytes=1 << 20)
        self.side.command("touch", self.side.path("touched"))
        self.side.make_folder("made")
        with self.side.background_client("churn", self.side.path("churned"), bytes=1 << 20):
            while not self.side.path("churned-0").exists():
                pass
        for name in (".", "written", "touched", "made", "churned-0"):
            status = self.side.path(name).stat()
            self.assertEqual((status.st_uid, status.st_gid), (12345, 12346), name)

    def test_a_row_may_have_root_as_its_client_for_a_while(self):
        self.side.mount()
        with self.side.clients_are(user.ROOT):
            self.side.command("touch", self.side.path("roots"))
        self.side.command("touch", self.side.path("users"))
        self.assertEqual([self.side.path(name).stat().st_uid for name in ("roots", "users")], [0, 12345])

    def test_a_folder_that_the_user_cannot_reach_is_an_error_with_a_way_out(self):
        self.folder.chmod(0o700)
        with self.assertRaisesRegex(system.BenchError, "12345, may not read .*: name another user with --user"):
            SOMEBODY.ensure_reaches(self.side.mountpoint)
        self.folder.chmod(0o755)
        SOMEBODY.ensure_reaches(self.side.mountpoint)

    def test_a_run_by_root_in_roots_tree_has_nobody_as_its_client(self):
        self.assertEqual(user.owner_of(self.folder), user.NOBODY)
        os.chown(self.folder, 1000, 1000)
        self.assertEqual(user.owner_of(self.folder), 1000)

    def test_the_place_of_a_run_is_open_whatever_the_umask_is(self):
        work = self.folder / "work"
        work.mkdir(mode=0o700)
        place = launch.place(mock.Mock(user=12345), work)
        self.assertEqual((work.stat().st_mode & 0o777, place.user.uid), (0o755, 12345))
        self.assertEqual(launch.place(mock.Mock(user=0), work).user, user.ROOT)

    def test_a_group_is_joined_before_the_user_changes(self):
        group, order = mock.Mock(), self.folder / "order"
        group.join = lambda: order.write_text(str(os.getuid()), encoding="ascii")
        subprocess.run(["true"], preexec_fn=system.before_program(group, SOMEBODY), check=True)
        self.assertEqual(order.read_text(encoding="ascii"), "0")


if __name__ == "__main__":
    unittest.main()
