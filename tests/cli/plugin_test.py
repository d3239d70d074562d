"""libdeft_cuda.so as it should be, missing, of another version, damaged: one sentence in `deft info`, and work on the CPU goes on."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

DEFT = pathlib.Path(os.environ["DEFT_CLI"])
PROGRAM = os.environ["DEFT_TEST_PLUGIN"]  # tests/plugin
BUILT = DEFT.parent.parent / "lib/libdeft_cuda.so"


def gpu(plugin=None):
    """What `deft info` says of the plug-in in a file; by default the one beside libdeft.so."""
    environment = {**os.environ, "DEFT_CUDA_PLUGIN": "" if plugin is None else str(plugin)}
    run = subprocess.run([DEFT, "info", "-o", "json"], capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == 0 and run.stderr == "", (run.returncode, run.stderr)
    return json.loads(run.stdout)["gpu"]


class Plugin(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, True)

    def copy(self, change=lambda content: content):
        self.assertTrue(BUILT.exists())
        path = self.folder / "libdeft_cuda_changed.so"
        path.write_bytes(change(BUILT.read_bytes()))
        return path

    def refused(self, plugin, *words):
        """The reason is one sentence with these words."""
        found = gpu(plugin)
        self.assertEqual((found["count"], found["plugin"]["loaded"]), (0, False))
        self.assertEqual(found["plugin"]["path"], str(plugin))
        self.assertTrue(found["reason"].startswith(f"{plugin} could not be loaded: "), found["reason"])
        self.assertNotIn("\n", found["reason"])
        for word in words:
            self.assertIn(word, found["reason"])

    def goes_on(self, plugin):
        """A program works on the CPU, and work on a GPU is refused."""
        environment = {**os.environ, "DEFT_CUDA_PLUGIN": str(plugin)}
        run = subprocess.run([PROGRAM, "--gtest_brief=1"], capture_output=True, text=True, timeout=300, env=environment)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        train = subprocess.run([DEFT, "train", "--device", "cuda"], capture_output=True, text=True, timeout=300, env=environment)
        self.assertEqual(train.returncode, 3, train.stderr)
        self.assertIn("there is no device cuda", train.stderr)

    def test_one_that_is_missing(self):
        self.refused(self.folder / "libdeft_cuda.so", "it is not there", "install deft-cuda")
        self.goes_on(self.folder / "libdeft_cuda.so")

    def test_files_that_are_no_library(self):
        for content in (b"", b"\x7fELF", b"no library at all\n" * 100):
            path = self.folder / "libdeft_cuda.so"
            path.write_bytes(content)
            self.refused(path, "no shared library for this machine")
        self.refused(self.folder, "no shared library for this machine")

    def test_a_library_that_is_no_plugin(self):
        self.refused((BUILT.parent / "libdeft.so").resolve(), "no plug-in of Deft")

    @unittest.skipUnless(BUILT.exists(), "built without CUDA")
    def test_one_of_another_version(self):
        identity = gpu()["plugin"]["identity"].encode()
        other = identity[:-1] + (b"0" if identity[-1:] != b"0" else b"1")
        plugin = self.copy(lambda content: content.replace(identity, other))
        self.refused(plugin, other.decode(), identity.decode(), "of one version")
        self.goes_on(plugin)

    @unittest.skipUnless(BUILT.exists(), "built without CUDA")
    def test_one_that_was_cut_off(self):
        for keep in (0.01, 0.5, 0.999):
            self.refused(self.copy(lambda content: content[:int(len(content) * keep)]), "was cut off")

    @unittest.skipUnless(BUILT.exists(), "built without CUDA")
    def test_a_library_of_nvidia_that_is_missing(self):
        needed = [line.split("[")[1].split("]")[0] for line in subprocess.run(
            ["readelf", "-dW", BUILT], check=True, capture_output=True, text=True).stdout.splitlines() if "(NEEDED)" in line]
        library = next(name for name in needed if name.startswith("libcublasLt.so"))
        absent = library.replace("cublasLt", "cublasXy")
        self.refused(self.copy(lambda content: content.replace(library.encode() + b"\0", absent.encode() + b"\0")),
                     f"it needs {absent}", "LD_LIBRARY_PATH")

    @unittest.skipUnless(BUILT.exists(), "built without CUDA")
    def test_one_without_its_entry(self):
        self.refused(self.copy(lambda content: content.replace(b"\0deft_cuda_plugin\0", b"\0deft_cuda_plugiX\0")), "deft_cuda_plugin")

    @unittest.skipUnless(BUILT.exists(), "built without CUDA")
    def test_the_one_beside_the_library(self):
        found = gpu()
        self.assertTrue(found["plugin"]["loaded"], found)
        self.assertEqual(pathlib.Path(found["plugin"]["path"]).resolve(), BUILT.resolve())
        self.assertRegex(found["versions"]["runtime"], r"^\d+\.\d+$")
        self.assertRegex(found["versions"]["cublaslt"], r"^\d+")
        self.assertEqual(gpu(self.copy())["plugin"]["loaded"], True)
        if found["count"] == 0:
            self.assertIn("NVIDIA driver", found["reason"])
            self.assertEqual(found["devices"], [])


if __name__ == "__main__":
    unittest.main()
