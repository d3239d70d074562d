"""What the pages promise about themselves: links lead somewhere, and README shows the program the install test builds."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\((?P<file>[^)#:\s]*)(#(?P<anchor>[^)\s]+))?\)")


def without_code(text):
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Docs(unittest.TestCase):
    def test_links(self):
        found = 0
        for page in PAGES:
            for link in LINK.finditer(without_code(page.read_text(encoding="utf-8"))):
                target = page.parent / link["file"] if link["file"] else page
                self.assertTrue(target.exists(), f"{page.name}: {link[0]}")
                if link["anchor"]:
                    self.assertIn(link["anchor"], anchors(target), f"{page.name}: {link[0]}")
                found += 1
        self.assertGreater(found, 5)

    def test_readme(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertIn((ROOT / "tests/install/fit.cpp").read_text(encoding="utf-8"), text)
        self.assertLess(text.count("\n"), 120)


if __name__ == "__main__":
    unittest.main()
