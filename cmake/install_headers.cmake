# Runs at install time. Inside the project a header says "core/tensor.h"; installed, it says "deft/core/tensor.h", so that
# it can never meet a user's own core/ folder. Private code (-inl.h, kernels) stays behind.
file(REMOVE_RECURSE "${stage_dir}")
list(JOIN folders "|" any_folder)

function(stage_header from to)
  file(READ "${from}" text)
  string(REGEX REPLACE "(#[ \t]*include[ \t]*)\"((${any_folder})/[^\"]*)\"" "\\1\"deft/\\2\"" text "${text}")
  file(WRITE "${stage_dir}/deft/${to}" "${text}")
endfunction()

foreach(folder IN LISTS folders)
  file(GLOB headers RELATIVE "${source_dir}/src" "${source_dir}/src/${folder}/*.h" "${source_dir}/src/${folder}/*.def")
  list(FILTER headers EXCLUDE REGEX "-inl\\.h$")
  foreach(header IN LISTS headers)
    stage_header("${source_dir}/src/${header}" "${header}")
  endforeach()
endforeach()
file(GLOB headers RELATIVE "${source_dir}/include/deft" "${source_dir}/include/deft/*.h")
foreach(header IN LISTS headers)
  stage_header("${source_dir}/include/deft/${header}" "${header}")
endforeach()

if(EXISTS "${stage_dir}/deft")
  cmake_path(ABSOLUTE_PATH include_dir BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  file(INSTALL "${stage_dir}/deft" DESTINATION "${include_dir}")
endif()
