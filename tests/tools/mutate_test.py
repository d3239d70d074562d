"""tools/mutate changes code in the ways it promises, and leaves the tree alone."""
import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("mutate", str(ROOT / "tools/mutate"))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)

SOURCE = """#include <vector>
int f(int a, int b) {
  // a < b in a comment
  if (a < b && ready("a < b")) return a + 1;
  forget(a);
  return 0;
}
"""


class Mutate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "f.cpp"
        self.path.write_text(SOURCE)
        mutate.ROOT = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_changes(self):
        found = [changed.strip() for _, changed in mutate.mutants_of(self.path)]
        for wanted in ('if (a <= b && ready("a < b")) return a + 1;', 'if (a < b || ready("a < b")) return a + 1;',
                       'if (!(a < b && ready("a < b"))) return a + 1;', 'if (a < b && ready("a < b")) return a - 1;',
                       'if (a < b && ready("a < b")) return a + 2;', "", "return 1;"):
            self.assertIn(wanted, found)
        self.assertFalse(any("<=" in line and "//" in line for line in found))

    def test_every_folder_has_places(self):
        mutate.ROOT = ROOT
        for folder in ("core", "io", "data", "optim", "graph"):
            self.assertGreater(len(list(mutate.places(folder))), 200, folder)

    def outcome(self, compiles, notices):
        """With a compiler that only says yes or no, and a linker that makes an empty program."""
        folder = mutate.Folder.__new__(mutate.Folder)
        folder.build = pathlib.Path(self.folder.name)
        folder.tests, folder.seconds = ["core"], {"core": 1}
        compiler = "true" if compiles else "false"
        folder.compile_commands = {str(self.path): {"command": f"{compiler} -o f.o -c {self.path}", "directory": self.folder.name}}
        folder.link_commands = {"core": 'link() { touch "$2"; }; link -o bin/test_core  lib/libdeft.a '}
        programs = []
        folder.run_test = lambda test, program, scratch, timeout: programs.append(program) or int(notices)
        number, changed = next(iter(mutate.mutants_of(self.path)))
        outcome = folder.try_one(self.path, number, changed)
        self.assertEqual(len(programs), int(compiles))
        self.assertEqual(self.path.read_text(), SOURCE)
        return outcome

    def test_outcomes(self):
        self.assertEqual(self.outcome(False, True), "invalid")
        self.assertEqual(self.outcome(True, True), "killed")
        self.assertIn("+  if", self.outcome(True, False))


if __name__ == "__main__":
    unittest.main()
