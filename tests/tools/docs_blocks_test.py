"""tools/docs_blocks on a small page and a stand-in library: blocks that hold pass, and each kind of lie is reported."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "docs_blocks"
COMPILER = os.environ.get("CXX", "c++")
HEADER = "#pragma once\n#include <cstdio>\nnamespace deft { int answer(); }\n"
GOOD = """
# Page
```cpp
printf("%d \\n", answer());
```

```text
42
```
```cpp
#include <string>
struct Greeting { std::string text = "hello"; };
int main(int argc, char**) {
  std::puts(Greeting{}.text.c_str());
  if (argc != 1) return 1;
}
```
```cpp no-run
std::abort();
```
```c++
a sketch, not compiled
```
```text
not the output of a block
```
1. in a list
   ```cpp
   int answer = 1;
   ```
"""


class DocsBlocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "include/deft").mkdir(parents=True)
        (cls.root / "docs").mkdir()
        (cls.root / "include/deft/deft.h").write_text(HEADER)
        (cls.root / "answer.cpp").write_text("namespace deft { int answer() { return 42; } }\n")
        cls.library = cls.root / "libdeft.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", cls.root / "answer.cpp", "-o", cls.library], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check(self, page):
        (self.root / "docs/page.md").write_text(page)
        result = subprocess.run([sys.executable, TOOL, "--compiler", COMPILER, "--library", self.library, "--root", self.root],
                                capture_output=True, text=True)
        return result.returncode, result.stdout

    def test_good_page(self):
        code, out = self.check(GOOD)
        self.assertEqual(code, 0, out)
        self.assertIn("docs/page.md: 4 blocks", out)

    def test_does_not_compile(self):
        code, out = self.check("text\n```cpp\nint x =;\n```\n")
        self.assertEqual(code, 1)
        self.assertIn("docs/page.md:3:", out)  # the compiler speaks of the page, not of the generated file

    def test_wrong_output(self):
        code, out = self.check('```cpp\nputs("one");\n```\n```text\ntwo\n```\n')
        self.assertEqual(code, 1)
        self.assertIn("docs/page.md:2: printed\none", out)

    def test_named_block(self):
        block = "```cpp file=train.cpp\n\nprintf(\"%s:%d\", __FILE__, __LINE__);\n```\n"
        code, out = self.check(block + "```text\ntrain.cpp:2\n```\n")
        self.assertEqual(code, 0, out)
        code, out = self.check(block + "```text\ntrain.cpp:3\n```\n")
        self.assertEqual(code, 1)
        self.assertIn("docs/page.md:2: printed\ntrain.cpp:2", out)

    def test_failing_block(self):
        code, out = self.check("```cpp\nint main() { return 3; }\n```\n")
        self.assertEqual(code, 1)
        self.assertIn("docs/page.md:2: exit status 3", out)


if __name__ == "__main__":
    unittest.main()
