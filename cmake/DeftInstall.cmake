# cmake --install: the library, the command line, the headers, and the package files behind find_package(deft).
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/deft")

# The same search path in the build tree and installed: where they differ, CMake makes room for the longer one with colons, and an
# empty element means the current directory.
set_target_properties(deft PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS deft EXPORT deftTargets)
if(DEFT_BUILD_STATIC_LIB)
  install(TARGETS deft_static EXPORT deftTargets)
endif()
if(TARGET deft_cli)
  set_target_properties(deft_cli PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
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
