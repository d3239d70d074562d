"""What was built is hardened, exports only public names, and knows nothing of the machine it was built on."""
import os
import pathlib
import platform
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DEFT_BUILD", ROOT / "build/release"))
CACHE = (BUILD / "CMakeCache.txt").read_text() if (BUILD / "CMakeCache.txt").exists() else ""
RELEASE = "CMAKE_BUILD_TYPE:STRING=Release" in CACHE
LIBRARY = BUILD / "lib/libdeft.so"
PLUGIN = BUILD / "lib/libdeft_cuda.so"
MOST_THREAD_LOCAL_BYTES = 256  # more does not fit where another library was loaded first: "static TLS block"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def binaries():
    found = [p for folder in ("bin", "lib") for p in sorted((BUILD / folder).glob("*")) if p.is_file() and not p.is_symlink()]
    return [p for p in found if p.read_bytes()[:4] == b"\x7fELF"]


def shipped():
    """Tests name their own sources; what is installed does not."""
    return [p for p in binaries() if p.name == "deft" or p.name.startswith(("libdeft.so", "libdeft_cuda.so"))]


def needed_by(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path))


def exported_by(path):
    return [line.split()[-1] for line in output("nm", "-D", "--defined-only", path).splitlines()]


class Binaries(unittest.TestCase):
    def test_there_are_some(self):
        self.assertIn("deft", [p.name for p in shipped()])
        self.assertTrue(LIBRARY.exists())

    def test_nothing_but_the_plugin_needs_cuda(self):
        for path in binaries():
            if path.name in ("deft", "test_plugin") or path.name.startswith(("libdeft.so", "example_")):
                self.assertEqual([name for name in needed_by(path) if re.search("cuda|cudnn|cublas|nvrtc|cupti", name)], [], path)
        self.assertTrue(needed_by(LIBRARY))

    @unittest.skipUnless(PLUGIN.exists(), "built without CUDA")
    def test_the_plugin_belongs_to_the_library(self):
        self.assertEqual(exported_by(PLUGIN), ["deft_cuda_plugin"])
        soname = re.search(r"SONAME.*\[(.*)\]", output("readelf", "-dW", LIBRARY)).group(1)
        self.assertIn(soname, needed_by(PLUGIN))
        self.assertRegex(output("readelf", "-dW", PLUGIN), "NODELETE")
        self.assertRegex(output("readelf", "-nW", PLUGIN), r"Deft\s")

    def test_no_search_path_has_an_empty_element(self):
        for path in binaries():
            for line in output("readelf", "-dW", path).splitlines():
                if "RUNPATH" in line or "RPATH" in line:
                    elements = re.search(r"\[(.*)\]", line).group(1).split(":")
                    self.assertNotIn("", elements, f"{path}: the current directory would be searched: {line}")
                    for element in elements:
                        self.assertRegex(element, r"^(/|\$ORIGIN)", path)

    def test_symbols_are_bound_before_the_program_starts(self):
        for path in shipped():
            self.assertRegex(output("readelf", "-dW", path), r"BIND_NOW|FLAGS_1.*NOW", path)
            self.assertIn("GNU_RELRO", output("readelf", "-lW", path), path)

    def test_the_stack_is_guarded_and_not_executable(self):
        for path in shipped():
            self.assertIn("__stack_chk_fail", output("readelf", "--dyn-syms", "-W", path), path)
            stack = [line for line in output("readelf", "-lW", path).splitlines() if "GNU_STACK" in line]
            self.assertNotRegex(stack[0], r"\bRWE\b", path)

    @unittest.skipUnless(RELEASE, "only optimized code is fortified")
    def test_the_c_library_checks_sizes(self):
        self.assertRegex(output("readelf", "--dyn-syms", "-W", LIBRARY), r"__(memcpy|snprintf|read|fread|memset)_chk")

    def test_branches_are_protected(self):
        wanted = {"x86_64": "IBT", "aarch64": "BTI"}.get(platform.machine())
        if not wanted:
            self.skipTest("no such protection on this architecture")
        # The linker marks what it makes only where the C library's start files are marked as well: so look at our objects.
        notes = output("readelf", "-nW", BUILD / "lib/libdeft.a").split("\nFile: ")[1:]
        self.assertGreater(len(notes), 100)
        self.assertEqual([note.split("\n")[0] for note in notes if wanted not in note], [])

    def test_thread_local_room_is_small(self):
        sizes = {path.name: [int(line.split()[5], 16) for line in output("readelf", "-lW", path).splitlines() if line.split()[:1] == ["TLS"]]
                 for path in shipped()}
        self.assertLessEqual(sum(sizes[LIBRARY.resolve().name]), MOST_THREAD_LOCAL_BYTES)
        self.assertEqual(sum(sizes.get(PLUGIN.name, [])), 0)  # it is always loaded late

    def test_thread_local_variables_of_others_are_found_when_used(self):
        at_fixed_places = [line for line in output("readelf", "-rW", LIBRARY).splitlines() if "_TPOFF" in line or "TLS_TPREL" in line]
        self.assertEqual([line for line in at_fixed_places if "@" in line], [])

    def test_only_public_names_are_exported(self):
        names = exported_by(LIBRARY)
        self.assertGreater(len(names), 500)
        foreign = [n for n in names if "4deft" not in n and not n.startswith("deft_")]
        self.assertEqual(foreign, [])
        kernels = {n for n in names if re.match(r"_Z(N|NK|TI|TS|TV|ZN|GVZN)4deft(3cpu|4cuda)", n)}
        used = {line.split()[-1] for line in output("nm", "-D", "--undefined-only", BUILD / "bin/deft").splitlines()}
        complete = {n for n in kernels if not re.search(r"PackedMatrix[CD]\dE", n)}  # constructors come in pairs
        self.assertEqual(complete - used, set(), "only what the deft command measures is exported of the kernels")

    @unittest.skipUnless(RELEASE, "others keep destructors that do nothing")
    def test_nothing_that_ops_use_is_destroyed_in_the_end(self):
        """Statics and threads of programs may run ops until the process is gone: whoever registers a destructor is known."""
        known = {"__cxa_atexit": {"static initialisation",            # DEFT_DOCTOR writes its report
                                  "cpu::tuner",                       # keeps its results
                                  "detail::parallel_for_slow"},       # ends its threads
                 # What comes after these is served all the same.
                 "__cxa_thread_atexit": {"Collector::add_thread", "detail::first_begin", "give_scratch", "may_cache"}}
        found = {name: [] for name in known}
        for part in output("readelf", "-rW", BUILD / "lib/libdeft.a").split("\nFile: ")[1:]:
            if not re.match(r"\S*\(\S*?\.(cpp|cxx)\.o\)", part):
                continue
            for section in part.split("Relocation section '.rela")[1:]:
                for name in known:
                    calls = len(re.findall(rf"\b{name}\b", section))
                    found[name] += [self.function_of(section.split("'")[0])] * calls
        for name, functions in known.items():
            strangers = [place for place in found[name] if not any(function in place for function in functions)]
            self.assertEqual(strangers, [], name)
            for function in functions:
                self.assertTrue(any(function in place for place in found[name]), (name, function))
        self.assertEqual(found["__cxa_atexit"].count("static initialisation"), 1)

    def function_of(self, section):
        if "_GLOBAL__sub_I_" in section:
            return "static initialisation"
        name = re.search(r"_Z[^.]*", section)
        return output("c++filt", name[0]) if name else section

    def test_the_library_is_named_by_its_minor_version(self):
        version = re.search(r"CMAKE_PROJECT_VERSION:STATIC=(\d+\.\d+)", CACHE).group(1)
        self.assertIn(f"[libdeft.so.{version}]", output("readelf", "-dW", LIBRARY))

    @unittest.skipUnless(RELEASE, "debug information names sources")
    def test_no_path_of_the_build_is_inside(self):
        for path in shipped():
            places = [m.start() for m in re.finditer(re.escape(str(ROOT).encode() + b"/"), path.read_bytes())]
            texts = [path.read_bytes()[at:at + 80].split(b"\0")[0] for at in places[:3]]
            self.assertEqual(texts, [], path)


class OneProcess(unittest.TestCase):
    """The library and PyTorch in one process, whichever comes first."""

    TORCH = os.environ.get("DEFT_TORCH_PYTHON", str(ROOT / ".cache/torch/bin/python"))
    LOAD = "import ctypes; ctypes.CDLL(%r)" % str(LIBRARY)
    USE = "import torch; assert float(torch.ones(8, 8).matmul(torch.ones(8, 8)).sum()) == 512"

    def test_in_both_orders(self):
        if not os.access(self.TORCH, os.X_OK):
            self.skipTest("no PyTorch; ./dev torch installs it, or DEFT_TORCH_PYTHON names a Python that has it")
        for program in (f"{self.LOAD}; {self.USE}", f"{self.USE}; {self.LOAD}"):
            run = subprocess.run([self.TORCH, "-c", program], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
