"""The manual page and the completions know every verb and flag of the command line."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFT = pathlib.Path(os.environ.get("DEFT_BUILD", ROOT / "build/release")) / "bin/deft"


@unittest.skipUnless(DEFT.exists(), "the command line was not built")
class CommandDocs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([sys.executable, "-B", ROOT / "tools/command_docs", DEFT, cls.folder.name], check=True)

    def text(self, name):
        return (pathlib.Path(self.folder.name) / name).read_text(encoding="utf-8")

    def complete(self, *words):
        program = f'. {self.folder.name}/deft.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _deft; echo "${{COMPREPLY[@]}}"'
        run = subprocess.run(["bash", "-euc", program, "bash", *words], check=True, capture_output=True, text=True)
        return run.stdout.split()

    def test_the_manual_names_every_verb_and_flag(self):
        page = self.text("deft.1").replace("\\-", "-")
        for path in (["train"], ["plan", "show"], ["bench", "gemm"], ["data", "bench"]):
            said = subprocess.run([DEFT, *path, "--help"], check=True, capture_output=True, text=True).stdout
            section = page.split(f".SS deft {' '.join(path)}\n")[1].split(".SS")[0]
            names = re.findall(r"^  (?:-\w,)?(--[-\w]+)", said, re.M)
            self.assertGreater(len(names), 1)
            for name in names:
                self.assertIn(rf"\fB{name}\fR", section, path)

    def test_bash_completes_verbs_and_flags(self):
        self.assertEqual(self.complete("deft", "pr"), ["profile"])
        self.assertEqual(self.complete("deft", "bench", "ge"), ["gemm"])
        self.assertEqual(self.complete("deft", "data", ""), ["inspect", "bench"])
        self.assertEqual(self.complete("deft", "eval", "--we"), ["--weights"])
        self.assertEqual(self.complete("deft", "bench", "overhead", "--ca"), ["--case"])

    def test_the_others_name_the_same_words(self):
        self.assertIn("'bench') compadd -- modes ", self.text("_deft"))
        self.assertIn("complete -c deft -f -n '__deft_at bench' -a gemm", self.text("deft.fish"))
        self.assertIn("complete -c deft -n '__deft_at eval' -l weights", self.text("deft.fish").replace("-s w ", ""))


if __name__ == "__main__":
    unittest.main()
