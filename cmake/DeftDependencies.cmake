# fmt and Highway are all the core library needs. They are found by header and library file alone, so that a bare prefix
# given by CMAKE_PREFIX_PATH (include/ and lib/, no package files) serves as well as an installed package.
include_guard(GLOBAL)

function(deft_find_library target)
  cmake_parse_arguments(arg "" "HEADER;LIBRARY;PACKAGE;SHARED_DEFINE" "" ${ARGN})
  if(TARGET ${target})
    return()
  endif()
  string(TOUPPER "DEFT_${arg_LIBRARY}" prefix)
  find_path(${prefix}_INCLUDE_DIR ${arg_HEADER})
  find_library(${prefix}_LIBRARY ${arg_LIBRARY})
  mark_as_advanced(${prefix}_INCLUDE_DIR ${prefix}_LIBRARY)
  if(NOT ${prefix}_INCLUDE_DIR OR NOT ${prefix}_LIBRARY)
    message(FATAL_ERROR
      "deft needs ${arg_LIBRARY}: ${arg_HEADER} or lib${arg_LIBRARY} was not found.\n"
      "Install ${arg_PACKAGE} (on Debian or Ubuntu: apt-get install ${arg_PACKAGE}), "
      "or pass -DCMAKE_PREFIX_PATH=<a folder with include/ and lib/>.")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${${prefix}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${${prefix}_INCLUDE_DIR}")
  if(arg_SHARED_DEFINE AND ${prefix}_LIBRARY MATCHES "\\.(so|dylib)")
    set_target_properties(${target} PROPERTIES INTERFACE_COMPILE_DEFINITIONS ${arg_SHARED_DEFINE})
  endif()
endfunction()

# deft_find_optional(<name> HEADER <h> LIBRARY <file> PACKAGE <Debian package> WITHOUT <what is missing then>)
# deft::<name> with DEFT_HAS_<NAME> where it is found, else an empty target: files that need it give an error that says so.
function(deft_find_optional name)
  cmake_parse_arguments(arg "" "HEADER;LIBRARY;PACKAGE;WITHOUT" "" ${ARGN})
  if(TARGET deft_${name})
    return()
  endif()
  string(TOUPPER ${name} upper)
  add_library(deft_${name} INTERFACE)
  add_library(deft::${name} ALIAS deft_${name})
  find_path(DEFT_${upper}_INCLUDE_DIR ${arg_HEADER})
  find_library(DEFT_${upper}_LIBRARY ${arg_LIBRARY})
  mark_as_advanced(DEFT_${upper}_INCLUDE_DIR DEFT_${upper}_LIBRARY)
  if(DEFT_${upper}_INCLUDE_DIR AND DEFT_${upper}_LIBRARY)
    target_include_directories(deft_${name} SYSTEM INTERFACE "${DEFT_${upper}_INCLUDE_DIR}")
    target_compile_definitions(deft_${name} INTERFACE DEFT_HAS_${upper})
    target_link_libraries(deft_${name} INTERFACE "${DEFT_${upper}_LIBRARY}")
  else()
    message(STATUS "${name} was not found (${arg_PACKAGE}): ${arg_WITHOUT}")
  endif()
endfunction()

find_package(Threads REQUIRED)
deft_find_library(fmt::fmt HEADER fmt/format.h LIBRARY fmt PACKAGE libfmt-dev)
deft_find_library(hwy::hwy HEADER hwy/highway.h LIBRARY hwy PACKAGE libhwy-dev SHARED_DEFINE HWY_SHARED_DEFINE)
deft_find_optional(zlib HEADER zlib.h LIBRARY z PACKAGE zlib1g-dev WITHOUT "gzipped and deflated files cannot be read")
deft_find_optional(jpeg HEADER jpeglib.h LIBRARY jpeg PACKAGE libjpeg62-turbo-dev WITHOUT "JPEG images cannot be read")
deft_find_optional(png HEADER png.h LIBRARY png PACKAGE libpng-dev WITHOUT "PNG images cannot be read")
