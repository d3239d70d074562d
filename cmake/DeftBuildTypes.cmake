# The build types and their flags: defaults set before project(), so that -DCMAKE_CXX_FLAGS_<TYPE>=... still wins.
function(deft_build_type type compile_flags link_flags)
  string(TOUPPER ${type} upper)
  set(CMAKE_CXX_FLAGS_${upper} "${compile_flags}" CACHE STRING "Compiler flags of ${type} builds")
  foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_${upper} "${link_flags}" CACHE STRING "Linker flags of ${type} builds")
  endforeach()
endfunction()

# Not null: GCC tests the address of a thread_local by the flags of the addition that makes it, which the linker turns
# into an instruction that sets none. Nor what ASan sees itself and what takes a quarter of the time to compile:
# pointer-overflow, object-size, vptr. -Og takes two thirds of the time of -O1; -g1 is enough for a stack of lines.
string(JOIN "," undefined bounds shift integer-divide-by-zero signed-integer-overflow float-cast-overflow alignment return bool
       enum builtin nonnull-attribute returns-nonnull-attribute vla-bound unreachable)
set(asan "-fsanitize=address,${undefined}")
set(fuzz "-fsanitize=address,undefined -fno-sanitize=null")
set(tsan "-fsanitize=thread")
deft_build_type(Release "-O2 -DNDEBUG" "")
deft_build_type(Debug "-O0 -g" "")
deft_build_type(Asan "-Og -g1 ${asan} -fno-sanitize-recover=all -fno-omit-frame-pointer" "${asan}")
deft_build_type(Tsan "-Og -g1 ${tsan} -fno-omit-frame-pointer" "${tsan}")
deft_build_type(Fuzz "-O1 -g1 ${fuzz} -fsanitize=fuzzer-no-link -fno-sanitize-recover=all -fno-omit-frame-pointer" "${fuzz}")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, Asan, Tsan or Fuzz")
endif()
