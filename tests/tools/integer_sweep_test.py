"""Every function with an integer among its parameters is in the sweep of tests/ops/integer_*_test.cpp."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RETURNS = r"(?:Tensor&?|std::array<Tensor, \d>|std::vector<Tensor>)"
DECLARATION = re.compile(rf"^\s*{RETURNS} (\w+(?:##n##d\w*)?)\(([^;]*?)\)(?: const)?;", re.M | re.S)
NOT_FOR_USERS = {"cuda_fast", "rows_along", "make_view"}


def functions_of(text):
    """Names of functions that take an integer or a list of them; the macros of 1 to 3 dims written out."""
    names = set()
    for name, parameters in DECLARATION.findall(text.replace("\\\n", "\n")):
        if re.search(r"\bint64_t\b|\bIntList\b|\bint\b", parameters) and "return" not in parameters:
            names.update(name.replace("##n##", n) for n in ("123" if "##n##" in name else "1"))
    return names - NOT_FOR_USERS


class IntegerSweep(unittest.TestCase):
    def test_every_function_is_swept(self):
        headers = [h for h in (ROOT / "src/ops").glob("*.h") if "_common" not in h.name and "samples" not in h.name]
        headers.append(ROOT / "src/core/tensor.h")
        names = set().union(*(functions_of(h.read_text()) for h in headers))
        self.assertGreater(len(names), 100)
        swept = "".join(t.read_text() for t in (ROOT / "tests/ops").glob("integer_*_test.cpp"))
        missing = [n for n in sorted(names) if not re.search(rf"\b{n}\(|&{n}\)", swept)]
        self.assertEqual(missing, [], "functions that no test calls with integers of all sizes")

    def test_a_new_function_is_noticed(self):
        text = "Tensor fresh(const Tensor& x, std::optional<int64_t> dim = {},\n             Site site = Site::current());\n"
        self.assertEqual(functions_of(text), {"fresh"})
        self.assertEqual(functions_of("  Tensor pool##n##d(const Tensor& x, IntList k = {});  \\\n"), {"pool1d", "pool2d", "pool3d"})


if __name__ == "__main__":
    unittest.main()
