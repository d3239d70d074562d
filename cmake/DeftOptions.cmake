# Compile and link options of everything built here, carried by one interface target: deft_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the same objects go into the shared and the static library
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

find_program(DEFT_CCACHE ccache)
mark_as_advanced(DEFT_CCACHE)
if(DEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${DEFT_CCACHE}")
endif()

add_library(deft_options INTERFACE)
target_include_directories(deft_options INTERFACE
  "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/generated")
target_compile_options(deft_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;\
$<$<BOOL:${DEFT_WERROR}>:-Werror>;\
-fno-semantic-interposition;-fno-plt;-ftls-model=initial-exec;-ffunction-sections;-fdata-sections>")
target_compile_definitions(deft_options INTERFACE
  $<$<CONFIG:Debug>:DEFT_DEBUG> $<$<CONFIG:Asan>:DEFT_ASAN> $<$<CONFIG:Tsan>:DEFT_TSAN>)
target_link_options(deft_options INTERFACE -Wl,--gc-sections)
target_link_libraries(deft_options INTERFACE Threads::Threads)
