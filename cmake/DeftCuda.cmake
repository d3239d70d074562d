# CUDA, where it is found: DEFT_CUDA = AUTO (use it if it is there), ON (fail if it is not), OFF. Sets DEFT_HAS_CUDA and the
# interface target deft_cuda: headers and libraries of the toolkit.
set(DEFT_CUDA AUTO CACHE STRING "Build for NVIDIA GPUs: AUTO (where a CUDA toolkit is found), ON, OFF")
set_property(CACHE DEFT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DEFT_CUDA_TARGETS sm_80 sm_90 CACHE STRING "GPU architectures to make code for")
set(DEFT_HAS_CUDA false)
set(DEFT_HAS_CUDNN 0)

if(DEFT_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(DEFT_NVCC nvcc HINTS /usr/local/cuda/bin)
    mark_as_advanced(DEFT_NVCC)
    # A wrapper without its toolkit must not stop the build.
    execute_process(COMMAND "${DEFT_NVCC}" --version RESULT_VARIABLE broken OUTPUT_QUIET ERROR_QUIET)
    if(DEFT_NVCC AND NOT broken)
      set(CMAKE_CUDA_COMPILER "${DEFT_NVCC}")
    endif()
  endif()
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # the flags below name the targets
  if(CMAKE_CUDA_COMPILER OR DEFINED ENV{CUDACXX})
    enable_language(CUDA)
    find_package(CUDAToolkit)
  endif()
  if(CMAKE_CUDA_COMPILER AND TARGET CUDA::cudart AND TARGET CUDA::cublasLt AND
     CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0)
    set(DEFT_HAS_CUDA true)
  elseif(DEFT_CUDA STREQUAL "AUTO")
    message(STATUS "No CUDA toolkit (12.0 or newer, with cuBLASLt): building for the CPU only")
  else()
    message(FATAL_ERROR "DEFT_CUDA=ON, but no CUDA toolkit (12.0 or newer, with cuBLASLt) was found. Put nvcc on PATH, "
                        "set CUDACXX, or pass -DDEFT_CUDA=AUTO.")
  endif()
endif()

configure_file("${PROJECT_SOURCE_DIR}/src/runtime/config.h.in" "${PROJECT_BINARY_DIR}/generated/runtime/config.h" @ONLY)
add_library(deft_cuda INTERFACE)
add_library(deft::cuda ALIAS deft_cuda)
if(NOT DEFT_HAS_CUDA)
  return()
endif()

# The static one has a page of thread-local memory, for which programs that load the library later have no room.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 takes it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG" CACHE STRING "nvcc flags of Release builds" FORCE)
set(CMAKE_CUDA_FLAGS_DEBUG "-O1 -g" CACHE STRING "nvcc flags of Debug builds" FORCE)
set(CMAKE_CUDA_FLAGS_ASAN "-O3 -g" CACHE STRING "nvcc flags of Asan builds" FORCE)
set(CMAKE_CUDA_FLAGS_TSAN "-O3 -g" CACHE STRING "nvcc flags of Tsan builds" FORCE)
if(DEFT_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${DEFT_CCACHE}")
endif()

# Plain kernels use nothing newer than compute_80, so PTX is made once and assembled for every target.
set(cuda_targets "")
foreach(target IN LISTS DEFT_CUDA_TARGETS)
  list(APPEND cuda_targets "SHELL:-gencode arch=compute_80,code=${target}")
endforeach()

if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
  list(APPEND cuda_targets --compress-mode=size)  # a quarter of the size; such drivers know how to unpack it
endif()

foreach(flag IN LISTS prefix_maps branch_protection)
  string(APPEND cuda_host_flags ",${flag}")
endforeach()

target_include_directories(deft_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(deft_cuda INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-fno-plt,-ffunction-sections,-fstack-protector-strong${cuda_host_flags};${cuda_targets}>")
target_link_libraries(deft_cuda INTERFACE CUDA::cudart CUDA::cublasLt)

find_path(DEFT_CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(DEFT_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS "${CUDAToolkit_LIBRARY_DIR}")
mark_as_advanced(DEFT_CUDNN_INCLUDE_DIR DEFT_CUDNN_LIBRARY)
if(DEFT_CUDNN_INCLUDE_DIR AND DEFT_CUDNN_LIBRARY)
  set(DEFT_HAS_CUDNN 1)
  target_include_directories(deft_cuda SYSTEM INTERFACE "${DEFT_CUDNN_INCLUDE_DIR}")
  target_link_libraries(deft_cuda INTERFACE "${DEFT_CUDNN_LIBRARY}")
else()
  message(STATUS "cuDNN 9 not found: convolutions on the GPU use Deft's own plain kernels")
endif()
target_compile_definitions(deft_cuda INTERFACE DEFT_HAS_CUDNN=${DEFT_HAS_CUDNN})
