# The build types and their flags: defaults set before project(), so that -DCMAKE_CXX_FLAGS_<TYPE>=... still wins.
function(deft_build_type type compile_flags link_flags)
  string(TOUPPER ${type} upper)
  set(CMAKE_CXX_FLAGS_${upper} "${compile_flags}" CACHE STRING "Compiler flags of ${type} builds")
  foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_${upper} "${link_flags}" CACHE STRING "Linker flags of ${type} builds")
  endforeach()
endfunction()

# Not null: GCC tests the address of a thread_local by the flags of the addition that makes it, which the linker turns
# into an instruction that sets none.
set(asan "-fsanitize=address,undefined -fno-sanitize=null")
set(tsan "-fsanitize=thread")
deft_build_type(Release "-O2 -DNDEBUG" "")
deft_build_type(Debug "-O0 -g" "")
deft_build_type(Asan "-O1 -g ${asan} -fno-sanitize-recover=all -fno-omit-frame-pointer" "${asan}")
deft_build_type(Tsan "-O1 -g ${tsan} -fno-omit-frame-pointer" "${tsan}")
deft_build_type(Fuzz "-O1 -g ${asan} -fsanitize=fuzzer-no-link -fno-sanitize-recover=all -fno-omit-frame-pointer" "${asan}")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, Asan, Tsan or Fuzz")
endif()
