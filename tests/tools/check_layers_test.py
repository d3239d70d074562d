"""tools/check_layers on tiny source trees: a clean one passes, each kind of violation fails with one line naming it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "check_layers"
CLEAN = {
    "src/base/error.h": "#pragma once\n",
    "src/core/tensor.h": '#include "base/error.h"\n',
    "src/kernels/cpu/gemm/gemm.h": '#include "base/error.h"\n#include "hwy/highway.h"\n',
    "src/ops/matmul.h": '#include "core/tensor.h"\n#include "kernels/cpu/gemm/gemm.h"\n',
    "include/deft/deft.h": '#include "ops/matmul.h"\n',
    "apps/deft/main.cpp": '#include "deft/deft.h"\n#include "kernels/cpu/gemm/gemm.h"\n',
    "CMakeLists.txt": "deft_layer(core FOLDER core LINKS base runtime fmt::fmt HEADERS)\n",
}


def check(extra):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**CLEAN, **extra}.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True)
        return result.returncode, result.stdout.strip(), result.stderr.strip()


class CheckLayers(unittest.TestCase):
    def test_clean_tree(self):
        self.assertEqual(check({}), (0, "layers: 6 files, no violation", ""))

    def assert_violation(self, extra, expected):
        code, out, _ = check(extra)
        self.assertEqual((code, len(out.splitlines())), (1, 1), out)
        self.assertIn(expected, out)

    def test_upward_include(self):
        self.assert_violation({"src/base/error.h": '#include "runtime/dtype.h"\n'}, "base may not use runtime")

    def test_skipped_layer(self):
        self.assert_violation({"src/nn/linear.h": '#include "kernels/cpu/gemm/gemm.h"\n'}, "nn may not use kernels/cpu")

    def test_tensor_in_kernels(self):
        self.assert_violation({"src/kernels/cpu/gemm/gemm.cpp": '  #  include "core/tensor.h"\n'},
                              "src/kernels/cpu/gemm/gemm.cpp: includes")

    def test_public_header_from_inside(self):
        self.assert_violation({"src/core/view.h": '#include "deft/deft.h"\n'}, "public header")

    def test_unknown_folder(self):
        self.assert_violation({"src/misc/x.h": ""}, "not in the layer table")

    def test_cycle(self):
        self.assert_violation({"src/core/a.h": '#include "core/b.h"\n', "src/core/b.h": '#include "a.h"\n'},
                              "include cycle: src/core/a.h -> src/core/b.h -> src/core/a.h")

    def test_utils(self):
        self.assert_violation({"src/core/string_utils.h": ""}, "no utils")
        self.assertEqual(check({"src/base/utils.h": ""})[0], 0)

    def test_file_size(self):
        self.assert_violation({"src/core/big.cpp": "\n" * 1001}, "1001 lines")
        code, _, err = check({"src/core/long.cpp": "\n" * 601})
        self.assertEqual(code, 0)
        self.assertIn("warning: src/core/long.cpp: 601 lines", err)

    def test_cmake_links(self):
        self.assert_violation({"CMakeLists.txt": "deft_layer(core FOLDER core LINKS base ops)\n"}, "core links ops")


if __name__ == "__main__":
    unittest.main()
