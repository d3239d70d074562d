# cmake --install: the library, the command line, the headers, and the package files behind find_package(deft).
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/deft")

# The same search path in the build tree and installed, of which no part is a folder of this machine: CUDA's libraries are found where
# the loader looks for any (ld.so.conf, which NVIDIA's packages write, or LD_LIBRARY_PATH). Two different ones would not do: CMake
# then makes room with colons, and an empty element means the current directory.
set_target_properties(deft PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
install(TARGETS deft EXPORT deftTargets)
if(TARGET deft_cuda_plugin)
  set_target_properties(deft_cuda_plugin PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  install(TARGETS deft_cuda_plugin LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT cuda)
endif()
if(DEFT_BUILD_STATIC_LIB)
  install(TARGETS deft_static EXPORT deftTargets)
endif()
if(TARGET deft_cli)
  # The library lies in lib/ of the build tree and of most systems, or in the folder above bin/ in a Python package.
  set(library_folders "$ORIGIN/../lib" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN/..")
  list(REMOVE_DUPLICATES library_folders)
  set_target_properties(deft_cli PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${library_folders}")
  install(TARGETS deft_cli)
endif()

get_property(folders GLOBAL PROPERTY DEFT_HEADER_FOLDERS)
install(CODE "
  set(source_dir [[${PROJECT_SOURCE_DIR}]])
  set(stage_dir [[${PROJECT_BINARY_DIR}/install_headers]])
  set(include_dir [[${CMAKE_INSTALL_INCLUDEDIR}]])
  set(generated_dir [[${PROJECT_BINARY_DIR}/generated]])
  set(folders [[${folders}]])")
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake")

install(EXPORT deftTargets NAMESPACE deft:: DESTINATION "${package_dir}")
configure_package_config_file(cmake/deftConfig.cmake.in deftConfig.cmake INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(deftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/deftConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/deftConfigVersion.cmake"
              cmake/DeftDependencies.cmake
        DESTINATION "${package_dir}")

add_custom_target(deft_installed DEPENDS deft)  # all that cmake --install needs
foreach(target deft_cuda_plugin deft_static deft_cli deft_command_docs)
  if(TARGET ${target} AND (DEFT_BUILD_STATIC_LIB OR NOT target STREQUAL "deft_static"))
    add_dependencies(deft_installed ${target})
  endif()
endforeach()

# cpack (./dev package): a tarball with everything that runs from wherever it is unpacked, and packages for Debian, of which the
# plug-in has its own.
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_CONTACT "Deft developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
set(CPACK_PACKAGE_FILE_NAME "deft-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_COMPONENTS_ALL deft)
if(TARGET deft_cuda_plugin)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/bundle_libraries.cmake")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_DEFT_PACKAGE_NAME deft)
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME deft-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "deft (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)  # NVIDIA's libraries come from other places, too; deft info names what is missing
set(CPACK_COMPONENT_CUDA_DESCRIPTION "The CUDA plug-in of Deft; needs NVIDIA's cudart, cuBLASLt and cuDNN 9 of CUDA ${CUDAToolkit_VERSION_MAJOR}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
include(CPack)
