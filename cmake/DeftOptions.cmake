# Compile and link options of everything built here, carried by one interface target: deft_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the same objects go into the shared and the static library
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

find_program(DEFT_CCACHE ccache)
mark_as_advanced(DEFT_CCACHE)
if(DEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DEFT_CCACHE}")
endif()

add_library(deft_options INTERFACE)
target_include_directories(deft_options INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/generated")
target_compile_options(deft_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;\
$<$<BOOL:${DEFT_WERROR}>:-Werror>;\
-fno-semantic-interposition;-fno-plt;-ftls-model=initial-exec;-ffunction-sections;-fdata-sections>")
# Binaries name Deft's own sources "deft/src/...", wherever they were built. ccache may give the compiler relative paths.
file(RELATIVE_PATH to_sources "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
string(REGEX REPLACE "/$" "" to_sources "${to_sources}")
foreach(folder src include apps bench)
  foreach(root "${PROJECT_SOURCE_DIR}" "${to_sources}")
    list(APPEND prefix_maps "-ffile-prefix-map=${root}/${folder}=deft/${folder}")
  endforeach()
endforeach()
target_compile_options(deft_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${prefix_maps}>")

# Notes on how old versions of GCC passed vectors to functions: all of Deft is compiled by one.
target_compile_options(deft_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-psabi>)
# Some files switch off warnings that only GCC has; clang, which builds the fuzz targets, would warn of their names.
target_compile_options(deft_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-unknown-warning-option>)

# Hardening: guards on the stack, targets of indirect jumps that the CPU checks, symbols bound before the program starts.
if(DEFT_ARCHITECTURE STREQUAL "x86")
  set(branch_protection -fcf-protection=full)
else()
  set(branch_protection -mbranch-protection=standard)
endif()
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(${branch_protection} DEFT_HAS_BRANCH_PROTECTION)
target_compile_options(deft_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;\
$<$<BOOL:${DEFT_HAS_BRANCH_PROTECTION}>:${branch_protection}>>")
add_link_options(LINKER:-z,relro,-z,now)
# Sizes that the C library checks: where the compiler optimizes, and so not in the tests.
add_library(deft_fortify INTERFACE)
target_compile_options(deft_fortify INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")

target_compile_definitions(deft_options INTERFACE
  $<$<CONFIG:Debug>:DEFT_DEBUG> $<$<CONFIG:Asan,Fuzz>:DEFT_ASAN> $<$<CONFIG:Tsan>:DEFT_TSAN>)
target_link_options(deft_options INTERFACE -Wl,--gc-sections)

# Kernels are compiled for every SIMD target (src/kernels/cpu/targets.h). Sanitizer builds run where they are made and leave out
# all but the best one there and the scalar one.
set(DEFT_SIMD_TARGETS all CACHE STRING "all, or native: the build machine's best SIMD target and the scalar one")
set_property(CACHE DEFT_SIMD_TARGETS PROPERTY STRINGS all native)
if(DEFT_SIMD_TARGETS STREQUAL "native" AND DEFT_ARCHITECTURE STREQUAL "x86")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null OUTPUT_VARIABLE native)
  if(native MATCHES "__AVX512BW__")
    set(unused_targets "HWY_SSE4|HWY_AVX2")
  elseif(native MATCHES "__AVX2__")
    set(unused_targets "HWY_SSE4|HWY_AVX3")
  else()
    set(unused_targets "HWY_AVX2|HWY_AVX3")
  endif()
  target_compile_definitions(deft_options INTERFACE "DEFT_UNUSED_TARGETS=${unused_targets}")
endif()
target_link_libraries(deft_options INTERFACE Threads::Threads)
