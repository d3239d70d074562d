"""One allocation fails, in turn each of a sample over the whole run of several commands: that ends with the exit code
for it, or is made good, but never with a signal or as an internal error. The program is named by DEFT_CLI;
DEFT_MEMORY_PLACES sets how many places are tried for each command."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
PLACES = int(os.environ.get("DEFT_MEMORY_PLACES", "12"))
DATA = ["-d", "glyphs", "--train-size", "64", "--test-size", "32", "-b", "32", "-t", "1"]

# Counts what the program asks for from main() on, and refuses the request with the number in FAIL_AT.
LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static long count, fail_at;
static int started, where;

static int refused(void) {
  if (!started || __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) != fail_at) return 0;
  if (where) {
    void* frames[60];
    started = 0;
    backtrace_symbols_fd(frames, backtrace(frames, 60), 2);
    started = 1;
  }
  errno = ENOMEM;
  return 1;
}
void* malloc(size_t n) { return refused() ? NULL : __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return refused() ? NULL : __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return refused() ? NULL : __libc_realloc(p, n); }
void* memalign(size_t a, size_t n) { return refused() ? NULL : __libc_memalign(a, n); }
void* aligned_alloc(size_t a, size_t n) { return refused() ? NULL : __libc_memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) {
  if (refused()) return ENOMEM;
  *p = __libc_memalign(a, n);
  return *p ? 0 : ENOMEM;
}

static int (*real_main)(int, char**, char**);
static int counting_main(int argc, char** argv, char** environment) {
  const char* at = getenv("FAIL_AT");
  fail_at = at ? atol(at) : 0;
  where = getenv("FAIL_WHERE") != NULL;
  void* frames[2];
  if (where) backtrace(frames, 2);
  started = 1;
  int code = real_main(argc, argv, environment);
  started = 0;
  const char* file = getenv("COUNT_FILE");
  if (file) {
    FILE* f = fopen(file, "w");
    if (f) fprintf(f, "%ld", count), fclose(f);
  }
  return code;
}
int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  typedef int (*Start)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  Start start = (Start)dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = main;
  return start(counting_main, argc, argv, init, fini, rtld_fini, stack_end);
}
"""


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class OneRefusedAllocation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        source, cls.library = cls.folder / "refuse.c", cls.folder / "refuse.so"
        source.write_text(LIBRARY)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", cls.library, source, "-ldl"], check=True)
        run = subprocess.run([DEFT, "train", "-m", "mlp", *DATA, "-e", "1", "--out", cls.folder / "trained"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        cls.weights = max((cls.folder / "trained").glob("*.safetensors"))

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def deft(self, arguments, **environment):
        # Without the CUDA plug-in: NVIDIA's libraries do not survive a refusal while they are loaded.
        environment = {**os.environ, "LD_PRELOAD": str(self.library), "DEFT_CUDA_PLUGIN": "/nonexistent", **environment}
        return subprocess.run([DEFT, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=environment)

    def sweep(self, arguments, places=PLACES, outputs=()):
        """Fails every n-th allocation of a command in a run of its own."""
        counted = self.folder / "count"
        run = self.deft(arguments, COUNT_FILE=str(counted))
        self.assertEqual(run.returncode, 0, run.stderr)
        total = int(counted.read_text())
        self.assertGreater(total, 100)
        noticed = 0
        for i in range(places):
            at = 1 + i * total // places + i % 7
            for path in outputs:
                shutil.rmtree(path, ignore_errors=True)
            run = self.deft(arguments, FAIL_AT=str(at))
            noticed += run.returncode == 5
            if run.returncode in (0, 5):
                self.assertEqual("out of memory" in run.stderr, run.returncode == 5, run.stderr)
                if run.returncode == 0 and "json" in arguments:
                    json.loads(run.stdout)
                continue
            where = self.deft(arguments, FAIL_AT=str(at), FAIL_WHERE="1").stderr
            self.fail(f"deft {' '.join(map(str, arguments))}: with allocation {at} of {total} refused: exit {run.returncode}\n{where}")
        self.assertGreater(noticed, places // 4)

    def test_train(self):
        self.sweep(["train", "-m", "mlp", *DATA, "-e", "1", "--out", self.folder / "again", "--log", self.folder / "log", "-o", "json"],
                   outputs=[self.folder / "again"])

    def test_eval(self):
        self.sweep(["eval", "-w", self.weights, *DATA, "-o", "json"])

    def test_infer(self):
        self.sweep(["infer", "-w", self.weights, *DATA, "-o", "json"])

    def test_info(self):
        self.sweep(["info", "-o", "json"])

    def test_compile(self):
        self.sweep(["compile", "-w", self.weights, *DATA, "--out", self.folder / "made.plan"])


if __name__ == "__main__":
    unittest.main()
