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

# deft::zlib: gzipped data sets and deflated archives; without it those files give an error that says so.
function(deft_find_zlib)
  if(TARGET deft_zlib)
    return()
  endif()
  add_library(deft_zlib INTERFACE)
  add_library(deft::zlib ALIAS deft_zlib)
  find_path(DEFT_ZLIB_INCLUDE_DIR zlib.h)
  find_library(DEFT_ZLIB_LIBRARY z)
  mark_as_advanced(DEFT_ZLIB_INCLUDE_DIR DEFT_ZLIB_LIBRARY)
  if(DEFT_ZLIB_INCLUDE_DIR AND DEFT_ZLIB_LIBRARY)
    target_include_directories(deft_zlib SYSTEM INTERFACE "${DEFT_ZLIB_INCLUDE_DIR}")
    target_compile_definitions(deft_zlib INTERFACE DEFT_HAS_ZLIB)
    target_link_libraries(deft_zlib INTERFACE "${DEFT_ZLIB_LIBRARY}")
  else()
    message(STATUS "zlib was not found (zlib1g-dev): gzipped and deflated files cannot be read")
  endif()
endfunction()

find_package(Threads REQUIRED)
deft_find_library(fmt::fmt HEADER fmt/format.h LIBRARY fmt PACKAGE libfmt-dev)
deft_find_library(hwy::hwy HEADER hwy/highway.h LIBRARY hwy PACKAGE libhwy-dev SHARED_DEFINE HWY_SHARED_DEFINE)
deft_find_zlib()
