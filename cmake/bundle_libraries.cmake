# Run by cpack before it packs. The tarball brings the libraries that a bare system has not, beside libdeft.so, which looks there
# first; a Debian package names the packages that have them.
if(NOT CPACK_GENERATOR STREQUAL "TGZ")
  return()
endif()
file(GLOB_RECURSE own "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/libdeft.so.*.*.*")
list(GET own 0 library)
cmake_path(GET library PARENT_PATH folder)
file(GET_RUNTIME_DEPENDENCIES LIBRARIES "${library}" RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
     POST_EXCLUDE_REGEXES "/(libc|libm|libdl|librt|libpthread|libstdc\\+\\+|libgcc_s|ld-linux[^/]*)\\.so")
if(missing)
  message(FATAL_ERROR "libdeft.so needs ${missing}, which are not on this machine")
endif()
foreach(path IN LISTS found)
  file(COPY "${path}" DESTINATION "${folder}" FOLLOW_SYMLINK_CHAIN)
endforeach()
