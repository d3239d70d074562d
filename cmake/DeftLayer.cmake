# deft_layer(<name> FOLDER <folder under src/> LINKS <layers and libraries>... [HEADERS])
# One object library deft_<name> per folder, compiled once. LINKS is the complete list of what it may use. HEADERS: its
# headers are installed. A folder that is missing or has no .cpp yet is an empty layer. Folders in it belong to it; those named
# like an architecture (x86, aarch64) are for that architecture only. What is compiled for CUDA (*.cu, *.cuda.cpp, all of
# kernels/cuda) is a library of its own and goes into the plug-in.
function(deft_layer name)
  cmake_parse_arguments(arg "HEADERS" "FOLDER" "LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${arg_FOLDER}/*.cpp")
  file(GLOB_RECURSE assembly CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${arg_FOLDER}/*.S")
  foreach(architecture x86 aarch64)
    if(NOT architecture STREQUAL DEFT_ARCHITECTURE)
      list(FILTER sources EXCLUDE REGEX "/${architecture}/")
      list(FILTER assembly EXCLUDE REGEX "/${architecture}/")
    endif()
  endforeach()
  set(cuda_sources ${sources})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cuda\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "\\.cuda\\.cpp$")
  file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${arg_FOLDER}/*.cu")
  if(arg_HEADERS)
    set_property(GLOBAL APPEND PROPERTY DEFT_HEADER_FOLDERS ${arg_FOLDER})
  endif()
  if(NOT sources)
    add_library(deft_${name} INTERFACE)
    return()
  endif()

  list(TRANSFORM arg_LINKS PREPEND deft_ REGEX "^[^:]+$")  # a plain name is a layer, pkg::name a library
  if(arg_FOLDER STREQUAL "kernels/cuda")
    list(APPEND sources ${device_sources})
  elseif(DEFT_HAS_CUDA AND (cuda_sources OR device_sources))
    deft_layer_objects(${name}_cuda "" ${arg_FOLDER} ${cuda_sources} ${device_sources})
    target_link_libraries(deft_${name}_cuda PRIVATE ${arg_LINKS})
    set_property(GLOBAL APPEND PROPERTY DEFT_PLUGIN_LAYERS deft_${name}_cuda)
  endif()
  deft_layer_objects(${name} "${assembly}" ${arg_FOLDER} ${sources})
  if(arg_FOLDER STREQUAL "kernels/cuda")
    set_property(GLOBAL APPEND PROPERTY DEFT_PLUGIN_LAYERS deft_${name})
  else()
    list(REMOVE_ITEM arg_LINKS deft::cuda)
    set_property(GLOBAL APPEND PROPERTY DEFT_LAYERS deft_${name})
  endif()
  target_link_libraries(deft_${name} PRIVATE ${arg_LINKS})
endfunction()

# deft_layer_objects(<name> <assembly> <folder> <sources>...): the object library, and how its files are compiled.
function(deft_layer_objects name assembly folder)
  set(sources ${ARGN})
  add_library(deft_${name} OBJECT ${sources} ${assembly})
  target_link_libraries(deft_${name} PRIVATE deft_options deft_fortify fmt::fmt)

  # Kernels get -O3 each; everything else is compiled some files at a time (cmake/DeftUnity.cmake).
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "\\.cpp$")
  if(NOT folder MATCHES "^kernels/")
    list(FILTER kernels INCLUDE REGEX "\\.cpu\\.cpp$")
    target_compile_options(deft_${name} PRIVATE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>,$<BOOL:${DEFT_LTO}>>:-flto;-ffat-lto-objects>)
    deft_unity(deft_${name} 8)
  endif()
  set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3$<$<BOOL:${DEFT_LTO}>:;-fno-lto>>)
  # Vectors of integers wrap around, also in GCC's intrinsics and Highway (log of NaN); UBSan takes that for overflow.
  set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Asan,Fuzz>:-fno-sanitize=signed-integer-overflow>)
  # std::future and std::call_once read thread-local variables of the C++ library, which has no static room where a program
  # loaded it late itself.
  foreach(file checkpoint.cpp elementwise_chain.cuda.cpp)
    set(path "${PROJECT_SOURCE_DIR}/src/${folder}/${file}")
    if("${path}" IN_LIST sources AND folder MATCHES "^(io|ops)$")
      set_property(SOURCE "${path}" APPEND PROPERTY COMPILE_OPTIONS -ftls-model=global-dynamic)
    endif()
  endforeach()
endfunction()

# deft_library(<name> SHARED|STATIC): a library made of the objects of all layers declared so far.
function(deft_library name kind)
  get_property(layers GLOBAL PROPERTY DEFT_LAYERS)
  list(TRANSFORM layers REPLACE ".+" "$<TARGET_OBJECTS:\\0>" OUTPUT_VARIABLE objects)
  add_library(${name} ${kind} ${objects})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src;${PROJECT_SOURCE_DIR}/include;${PROJECT_BINARY_DIR}/generated>"
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${name} PROPERTIES
    LINKER_LANGUAGE CXX OUTPUT_NAME deft VERSION ${PROJECT_VERSION} SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")  # while 0.x, minor versions differ
  target_link_libraries(${name} PRIVATE fmt::fmt hwy::hwy Threads::Threads ${CMAKE_DL_LIBS}
    $<BUILD_INTERFACE:deft_zlib> $<BUILD_INTERFACE:deft_jpeg> $<BUILD_INTERFACE:deft_png>)
  if(kind STREQUAL SHARED)
    target_link_options(${name} PRIVATE -Wl,--gc-sections -Wl,-Bsymbolic-functions
                        "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/deft.symbols" LINKER:-z,nodelete)  # threads end in it
    deft_link_complete(${name})
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/deft.symbols")
    deft_link_lto(${name})
  else()  # DEFT_DOCTOR=...: nothing refers to the object that looks at it
    target_link_options(${name} INTERFACE -Wl,-u,deft_doctor_autostart)
  endif()
endfunction()

# deft_plugin(): libdeft_cuda.so, and deft_cuda_static for tests that look inside. The plug-in is found beside libdeft.so and uses
# that; programs cannot link to it. DEFT_BUILD_IDENTITY says which libdeft.so it belongs to.
function(deft_plugin)
  get_property(layers GLOBAL PROPERTY DEFT_PLUGIN_LAYERS)
  list(TRANSFORM layers REPLACE ".+" "$<TARGET_OBJECTS:\\0>" OUTPUT_VARIABLE objects)
  add_library(deft_cuda_plugin MODULE ${objects})
  set_target_properties(deft_cuda_plugin PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME deft_cuda)
  target_link_libraries(deft_cuda_plugin PRIVATE deft fmt::fmt Threads::Threads deft::cuda)
  target_link_options(deft_cuda_plugin PRIVATE -Wl,--gc-sections -Wl,-Bsymbolic-functions
                      "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.symbols" LINKER:-z,nodelete)
  set_property(TARGET deft_cuda_plugin APPEND PROPERTY LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/plugin.symbols")
  deft_link_complete(deft_cuda_plugin)
  deft_link_lto(deft_cuda_plugin)

  add_library(deft_cuda_static STATIC EXCLUDE_FROM_ALL ${objects})
  set_target_properties(deft_cuda_static PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(deft_cuda_static PUBLIC deft_static deft::cuda)
endfunction()

# A symbol that nothing defines is an error of the linker, not of the program that loads the library. (The sanitizers' are in
# programs.)
function(deft_link_complete target)
  target_link_options(${target} PRIVATE $<$<CONFIG:Release,Debug>:-Wl,-z,defs>)
endfunction()

# Inlining across files at link time, where it is on.
function(deft_link_lto target)
  target_link_options(${target} PRIVATE
                      $<$<AND:$<CONFIG:Release>,$<BOOL:${DEFT_LTO}>>:-flto=auto;-O2;-fno-plt>)
endfunction()
