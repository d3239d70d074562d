// A program that loads the library while it runs, as scripting languages and hosts of plugins do: there is little room
// for variables of threads then.
#include <dlfcn.h>

#include <cstdio>

int main() {
  if (!dlopen(DEFT_LIBRARY, RTLD_NOW)) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::puts("loaded");
}
