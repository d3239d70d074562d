# Run by cpack for each kind of package: tarballs have one folder with everything in it, Debian packages begin at /.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
