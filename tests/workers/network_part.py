"""Two machines: network namespaces that a pair of virtual interfaces joins, each with a host name of its own."""
import os
import re
import shutil
import signal
import subprocess
import time

from processes import CURVE, Launch, WorkersTest, last_step, saved_step, torchrun_variables, wait_for

HOSTS = ["machine-a", "machine-b"]
ADDRESS = "10.99.0.{}"  # inside the two namespaces only
TIMEOUT = 4  # --dist-timeout, in seconds
ENDLESS = ["--steps", "100000", "--log-every", "1", "--eval-every", "100000", "--checkpoint-every", "10",
           "--dist-timeout", str(TIMEOUT)]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True)


class NetworkTest(WorkersTest):
    def setUp(self):
        super().setUp()
        for program in ("ip", "unshare"):
            if not shutil.which(program):
                self.skipTest(f"there is no {program}")
        self.namespaces = [f"renorm-{os.getpid()}-{host}" for host in HOSTS]
        try:
            self.make_network()
        except subprocess.CalledProcessError as error:
            self.skipTest(f"network namespaces are not allowed here: {error.stderr.strip()}")

    def make_network(self):
        run("unshare", "--uts", "true")
        for namespace in self.namespaces:
            run("ip", "netns", "add", namespace)
            self.addCleanup(run, "ip", "netns", "delete", namespace)
        one, other = self.namespaces
        run("ip", "link", "add", "cable", "netns", one, "type", "veth", "peer", "name", "cable", "netns", other)
        for index, namespace in enumerate(self.namespaces):
            for arguments in (["address", "add", ADDRESS.format(index + 1) + "/24", "dev", "cable"],
                              ["link", "set", "lo", "up"], ["link", "set", "cable", "up"]):
                run("ip", "-n", namespace, *arguments)

    def launch_on_two(self, out, *arguments, size=4):
        """The first half of the ranks is on the first machine."""
        self.launches += 1
        ranks = []
        for rank in range(size):
            machine = rank * 2 // size
            command = ["ip", "netns", "exec", self.namespaces[machine], "unshare", "--uts", "sh", "-c",
                       'hostname "$0" && exec "$@"', HOSTS[machine], *self.command(out, *arguments)]
            ranks.append(self.start(f"rank-{rank}", command, torchrun_variables(rank, size, local_size=size // 2)))
        launch = Launch(ranks)
        self.addCleanup(launch.__exit__)
        return launch

    def tcp(self):
        return ["--rendezvous", f"tcp://{ADDRESS.format(1)}:29500"]

    def test_address(self):
        launch = self.finish(self.launch_on_two("run", *CURVE, *self.tcp()))
        self.check_same(self.whole(1, *CURVE), "run")
        for rank in launch.ranks[1:]:
            self.assertEqual((rank.out + rank.err)[:500], "")

    def test_shared_folder(self):
        self.finish(self.launch_on_two("run", *CURVE, "--rendezvous", self.path("place")))
        self.check_same(self.whole(1, *CURVE), "run")
        self.assertEqual(self.meeting_places(), [])

    def start_endless(self, *arguments):
        launch = self.launch_on_two("run", *ENDLESS, *arguments)
        wait_for("step 15", lambda: last_step(self.path("run")) >= 15, launch)
        return launch

    def check_survivors(self, launch, lost):
        """Each names the rank that was lost, and its machine."""
        for index, rank in enumerate(launch.ranks):
            if index == lost:
                continue
            self.assertEqual(rank.process.returncode, 75, str(launch))
            saved = saved_step(self.path("run"))
            sentence = (rf"renorm: rank {lost} on '{HOSTS[lost // 2]}' ended or did not answer during step \d+; "
                        rf"the last checkpoint is of step {saved}; continue with --resume")
            self.assertEqual(len(rank.sentences()), 1, str(launch))
            self.assertTrue(re.fullmatch(sentence, rank.sentences()[0]), str(launch))

    def check_killed(self, lost, *arguments):
        launch = self.start_endless(*arguments)
        launch[lost].send(signal.SIGKILL)
        self.assertLess(launch.wait(), 5.0, str(launch))
        self.check_survivors(launch, lost)

    def test_killed_rank_3(self):
        self.check_killed(3, *self.tcp())

    def test_killed_rank_0(self):
        self.check_killed(0, *self.tcp())

    def test_killed_rank_2_with_a_folder(self):
        self.check_killed(2, "--rendezvous", self.path("place"))

    def test_hanging_rank_2(self):
        launch = self.start_endless(*self.tcp())
        launch[2].send(signal.SIGSTOP)
        try:
            self.assertLess(launch.wait(without=(2,)), TIMEOUT + 2.0, str(launch))
        finally:
            launch[2].send(signal.SIGCONT)
        self.check_survivors(launch, 2)

    def test_cut_cable(self):
        """Both machines wait for the other in vain."""
        launch = self.start_endless(*self.tcp())
        run("ip", "-n", self.namespaces[1], "link", "set", "cable", "down")
        begin = time.monotonic()
        launch.wait(40)
        self.assertEqual(launch.codes(), [75] * 4, str(launch))
        for rank in launch.ranks:
            self.assertEqual(len(rank.sentences()), 1, str(launch))
        self.assertLess(time.monotonic() - begin, TIMEOUT + 2.0, str(launch))
