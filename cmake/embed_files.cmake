# cmake -DOUTPUT=<file.cpp> -DFUNCTION=<name> -DROOT=<folder> -DFILES=<list> -P embed_files.cmake
# Writes a function that gives the texts of source files, for NVRTC. An entry of FILES is a path below ROOT, or path=name for a
# file that is included under another name.
set(entries "")
foreach(entry IN LISTS FILES)
  string(REGEX MATCH "^([^=]*)=?(.*)$" all "${entry}")
  set(path "${CMAKE_MATCH_1}")
  set(name "${CMAKE_MATCH_2}")
  if(name STREQUAL "")
    set(name "${path}")
  endif()
  file(READ "${ROOT}/${path}" text)
  string(APPEND entries "    {\"${name}\", R\"DEFT_EMBED(${text})DEFT_EMBED\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/embed_files.cmake.
#include \"ops/elementwise_chain_source.h\"

namespace deft {

std::span<const cuda::SourceFile> ${FUNCTION}() {
  static constexpr cuda::SourceFile files[] = {
${entries}  };
  return files;
}

}  // namespace deft
")
