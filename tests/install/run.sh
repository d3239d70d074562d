#!/usr/bin/env bash
# Installs a build into an empty prefix, then builds and runs a user's program against it, outside of this tree.
# usage: run.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A user needs neither the headers of the libraries inside nor this source tree: including one of them is an error here.
for header in fmt/core.h fmt/format.h hwy/base.h hwy/highway.h nlohmann/json.hpp nlohmann/json_fwd.hpp; do
  mkdir -p "$work/trap/${header%/*}"
  echo "#error a public header of deft includes <$header>" >"$work/trap/$header"
done

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
if grep -rn "#include \"\(base\|runtime\|core\|ops\|kernels\|amp\|graph\|profile\|nn\|optim\|data\|io\|models\|doctor\)/" "$work/prefix/include"; then
  echo "an installed header includes a path of the source tree" >&2
  exit 1
fi

mkdir "$work/user"
cp "$here/CMakeLists.txt" "$here"/*.cpp "$work/user/"
cmake -S "$work/user" -B "$work/user/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_FLAGS="-I$work/trap -Wall -Wextra -Werror" >"$work/configure.log"
cmake --build "$work/user/build"

expect() {  # PROGRAM OUTPUT
  local output
  output=$("$work/user/build/$1")
  [[ $output == "$2" ]] || { echo "expected: $2; found: $output" >&2; exit 1; }
}
expect fit learned
expect plugin loaded
if [[ -e $work/prefix/bin/deft ]]; then "$work/prefix/bin/deft" info >/dev/null; fi
