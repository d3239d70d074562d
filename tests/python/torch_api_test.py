"""docs/reference/torch_api.md says what is there and what is not; both are true."""

import pathlib
import re
import unittest

import deft

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/torch_api.md"


def resolve(space):
    thing = deft
    for part in space.split(".")[1:]:
        thing = getattr(thing, part, None)
    return thing


def sections():
    """(namespace, names that are there, names that are not)."""
    for space, body in re.findall(r"^## (torch[\w.]*)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S):
        there, missing = body.split("Not there:")
        yield space, re.findall(r"`(\w+)`", there), re.findall(r"`(\w+)`", missing)


class Page(unittest.TestCase):
    def test_what_is_there_is_there(self):
        seen = 0
        for space, there, _ in sections():
            for name in there:
                seen += 1
                self.assertTrue(hasattr(resolve(space), name), f"{space}.{name}")
        self.assertGreater(seen, 1000)

    def test_what_is_not_there_is_not_there(self):
        for space, _, missing in sections():
            thing = resolve(space)
            self.assertEqual([n for n in missing if thing is not None and hasattr(thing, n)], [], f"{space}: run tools/torch_api")

    def test_counts_are_those_of_the_lists(self):
        rows = dict((r[0], tuple(map(int, r[1:]))) for r in re.findall(r"^\| `(torch[\w.]*)` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.M))
        for space, there, missing in sections():
            self.assertEqual(rows.pop(space), (len(there) + len(missing), len(there), len(missing)))
        self.assertEqual(rows, {})


class Missing(unittest.TestCase):
    def test_a_missing_name_names_the_nearest(self):
        for space, wrong, near in ((deft, "sofmax", "softmax"), (deft.nn, "Linaer", "Linear"), (deft.optim, "AdamWW", "AdamW"),
                                   (deft.nn.functional, "cross_entrpy", "cross_entropy"), (deft.utils.data, "DataLoder", "DataLoader"),
                                   (deft.nn.init, "xavier_unifom_", "xavier_uniform_"), (deft.nn.utils, "clip_grad_values", "clip_grad_value_"),
                                   (deft.cuda, "is_avilable", "is_available"), (deft.linalg, "slove", "solve")):
            self.assertFalse(hasattr(space, wrong))
            with self.assertRaisesRegex(AttributeError, f"nearest is '{near}'"):
                getattr(space, wrong)

    def test_a_wrong_keyword_names_the_right_one(self):
        with self.assertRaisesRegex(TypeError, "did you mean 'dim'"):
            deft.softmax(deft.ones(2), dims=0)


if __name__ == "__main__":
    unittest.main()
