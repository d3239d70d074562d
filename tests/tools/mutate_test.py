"""tools/mutate changes code in the ways it promises, and always puts it back."""
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
        mutate.compile_mutant = lambda folder, build: compiles
        mutate.tests_notice = lambda folder, build, timeout: notices
        number, changed = next(iter(mutate.mutants_of(self.path)))
        outcome = mutate.try_one(self.path, number, changed, "core", None, 1)
        self.assertEqual(self.path.read_text(), SOURCE)
        return outcome

    def test_outcomes(self):
        self.assertEqual(self.outcome(False, True), "invalid")
        self.assertEqual(self.outcome(True, True), "killed")
        self.assertIn("+  if", self.outcome(True, False))

    def test_the_source_comes_back_after_an_error(self):
        def fail(folder, build):
            raise KeyboardInterrupt
        mutate.compile_mutant = fail
        number, changed = next(iter(mutate.mutants_of(self.path)))
        with self.assertRaises(KeyboardInterrupt):
            mutate.try_one(self.path, number, changed, "core", None, 1)
        self.assertEqual(self.path.read_text(), SOURCE)


if __name__ == "__main__":
    unittest.main()
