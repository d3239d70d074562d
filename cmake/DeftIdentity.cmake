# runtime/identity.h with DEFT_BUILD_IDENTITY: the version, the type of the build and a hash of the headers that libdeft.so and its
# plug-in share. They are loaded together only if it is the same in both, and it does not depend on whether CUDA was built.
set(identity_header "${PROJECT_BINARY_DIR}/generated/runtime/identity.h")
file(GLOB_RECURSE identity_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src"
     src/base/*.h src/runtime/*.h src/kernels/cpu/*.h src/core/*.h src/ops/*.h src/ops/*.def)
list(TRANSFORM identity_files PREPEND "${PROJECT_SOURCE_DIR}/src/" OUTPUT_VARIABLE identity_paths)
add_custom_command(OUTPUT "${identity_header}"
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${identity_header}" "-DROOT=${PROJECT_SOURCE_DIR}/src" "-DFILES=${identity_files}"
          "-DPREFIX=${PROJECT_VERSION}-${CMAKE_BUILD_TYPE}" -P "${PROJECT_SOURCE_DIR}/cmake/write_identity.cmake"
  DEPENDS ${identity_paths} "${PROJECT_SOURCE_DIR}/cmake/write_identity.cmake"
  COMMENT "Hashing the headers that plug-ins share" VERBATIM)
add_custom_target(deft_identity DEPENDS "${identity_header}")

foreach(target deft_runtime deft_ops_cuda)
  if(TARGET ${target})
    add_dependencies(${target} deft_identity)
  endif()
endforeach()
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/runtime/build_identity.cpp" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
