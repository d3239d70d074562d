# deft_layer(<name> FOLDER <folder under src/> LINKS <layers and libraries>... [HEADERS])
# One object library deft_<name> per folder, compiled once. LINKS is the complete list of what it may use. HEADERS: its
# headers are installed. A folder that is missing or has no .cpp yet is an empty layer. Folders in it belong to it; those named
# like an architecture (x86, aarch64) are for that architecture only.
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
  if(DEFT_HAS_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${arg_FOLDER}/*.cu")
  else()
    list(FILTER sources EXCLUDE REGEX "\\.cuda\\.cpp$")
  endif()
  if(arg_HEADERS)
    set_property(GLOBAL APPEND PROPERTY DEFT_HEADER_FOLDERS ${arg_FOLDER})
  endif()
  if(NOT sources)
    add_library(deft_${name} INTERFACE)
    return()
  endif()

  add_library(deft_${name} OBJECT ${sources} ${assembly} ${cuda_sources})
  list(TRANSFORM arg_LINKS PREPEND deft_ REGEX "^[^:]+$")  # a plain name is a layer, pkg::name a library
  target_link_libraries(deft_${name} PRIVATE deft_options deft_fortify fmt::fmt ${arg_LINKS})

  # Kernels get -O3 each; everything else is compiled some files at a time (cmake/DeftUnity.cmake).
  set(kernels ${sources})
  if(NOT arg_FOLDER MATCHES "^kernels/")
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
    set(path "${PROJECT_SOURCE_DIR}/src/${arg_FOLDER}/${file}")
    if("${path}" IN_LIST sources AND arg_FOLDER MATCHES "^(io|ops)$")
      set_property(SOURCE "${path}" APPEND PROPERTY COMPILE_OPTIONS -ftls-model=global-dynamic)
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY DEFT_LAYERS deft_${name})
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
  target_link_libraries(${name} PRIVATE fmt::fmt hwy::hwy Threads::Threads $<BUILD_INTERFACE:deft_cuda> $<BUILD_INTERFACE:deft_zlib>
    $<BUILD_INTERFACE:deft_jpeg> $<BUILD_INTERFACE:deft_png>)
  if(kind STREQUAL SHARED)
    target_link_options(${name} PRIVATE -Wl,--gc-sections -Wl,-Bsymbolic-functions
                        "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/deft.symbols" LINKER:-z,nodelete)  # threads end in it
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/deft.symbols")
    deft_link_lto(${name})
  else()  # DEFT_DOCTOR=...: nothing refers to the object that looks at it
    target_link_options(${name} INTERFACE -Wl,-u,deft_doctor_autostart)
  endif()
endfunction()

# Inlining across files at link time, where it is on.
function(deft_link_lto target)
  target_link_options(${target} PRIVATE
                      $<$<AND:$<CONFIG:Release>,$<BOOL:${DEFT_LTO}>>:-flto=auto;-O2;-fno-plt>)
endfunction()
