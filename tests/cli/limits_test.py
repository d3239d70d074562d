"""What stands outside of a run: full disks, no memory, odd settings, a clock that stands still. The program is named by
DEFT_CLI."""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
QUICK = ["-m", "mlp", "-d", "glyphs", "--train-size", "128", "--test-size", "64", "-b", "32", "-t", "1", "-e", "1"]


def deft(*arguments, **more):
    return subprocess.run([DEFT, *map(str, arguments)], capture_output="stdout" not in more, text=True, timeout=300, **more)


class FullDisk(unittest.TestCase):
    def test_whatever_cannot_be_printed_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text"
            text.write_text("the cat sat on the mat. " * 600)
            run = deft("train", "-m", "gpt2", "-d", "text", "--path", text, "--length", "16", "-b", "4", "-e", "1", "--train-size",
                       "8", "--test-size", "4", "--out", folder)
            self.assertEqual(run.returncode, 0, run.stderr)
            weights = max(pathlib.Path(folder).glob("*.safetensors"))
            for arguments in ([], ["--help"], ["--version"], ["info"], ["info", "-o", "json"], ["train", "--help"],
                              ["train", *QUICK], ["generate", "-w", weights, "-n", "3"]):
                with open("/dev/full", "w") as full:
                    run = deft(*arguments, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual(run.returncode, 3, f"{arguments}: {run.stderr}")
                self.assertIn("could not write the result", run.stderr)

    def test_what_cannot_be_told_changes_nothing(self):
        settings = {"DEFT_AUTOTUNE": "x", "DEFT_CPU_ISA": "none", "DEFT_DETERMINISTIC": "abc", "DEFT_NUM_THREADS": "q"}
        with tempfile.TemporaryDirectory() as folder:
            train = ["train", *QUICK, "--overwrite", "--out", folder, "--amp", "auto"]
            for arguments, env in ((["nosuch"], {}), (["eval", "-w", "nofile"], {}), (["train", *QUICK, "--log", "/dev/full"], {}),
                                   (["explain"], settings), (train, settings)):
                env = {**os.environ, **env}
                expected = deft(*arguments, env=env).returncode
                with open("/dev/full", "w") as full:
                    run = deft(*arguments, env=env, stdout=subprocess.PIPE, stderr=full)
                self.assertEqual(run.returncode, expected, arguments)
                run = subprocess.run(["sh", "-c", 'exec "$0" "$@" 2>&-', DEFT, *map(str, arguments)], env=env, stdout=subprocess.PIPE,
                                     timeout=300)
                self.assertEqual(run.returncode, expected, arguments)
            whole = deft("eval", *QUICK[:-2], "-w", max(pathlib.Path(folder).glob("*.safetensors")))  # nothing was written into it
            self.assertEqual(whole.returncode, 0, whole.stderr)

    def test_a_log_that_cannot_be_written_is_told_and_the_run_goes_on(self):
        run = deft("train", *QUICK, "--log", "/dev/full", "-o", "json")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertIn("the log /dev/full cannot be written", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertEqual(json.loads(run.stdout)["results"][0]["ended"], "all epochs done")


class Memory(unittest.TestCase):
    def test_none_left_has_an_exit_code_of_its_own(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))

        # A data set of a terabyte: more than the limit, whatever the machine has.
        run = deft("train", "--train-size", "1000000000", preexec_fn=limit)
        self.assertEqual((run.returncode, run.stdout), (5, ""), run.stderr)
        self.assertIn("deft: out of memory: ", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertIn("5 out of memory", deft("--help").stdout)


class Settings(unittest.TestCase):
    def test_what_is_no_setting_is_told(self):
        for name, words in (("DEFT_NUM_THREADS", ("abc", "0", "-1", "2x", "99999999999")), ("DEFT_DETERMINISTIC", ("abc", "2", "yes"))):
            for word in words:
                run = deft("train", *QUICK[:-4], "-e", "1", "-q", env={**os.environ, name: word})
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stderr.count(f"{name}={word} is "), 1, run.stderr)
        for name, word in (("DEFT_NUM_THREADS", "1"), ("DEFT_NUM_THREADS", ""), ("DEFT_DETERMINISTIC", "0"), ("DEFT_DETERMINISTIC", "1")):
            self.assertEqual(deft("train", *QUICK[:-4], "-e", "1", "-q", env={**os.environ, name: word}).stderr, "")


FROZEN = """
#include <time.h>
int clock_gettime(clockid_t id, struct timespec* t) { (void)id; t->tv_sec = 1000; t->tv_nsec = 0; return 0; }
"""


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class FrozenClock(unittest.TestCase):
    def test_profile_ends(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = pathlib.Path(folder) / "frozen.c", pathlib.Path(folder) / "frozen.so"
            source.write_text(FROZEN)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            run = deft("profile", "-m", "mlp", "-d", "glyphs", "-b", "4", "--steps", "2", "--train-size", "16", "--test-size", "16",
                       "-t", "1", "--workers", "0", env={**os.environ, "LD_PRELOAD": str(library)})
            self.assertIn(run.returncode, (0, 2, 3), run.stderr)


if __name__ == "__main__":
    unittest.main()
