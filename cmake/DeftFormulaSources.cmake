# The formulas of elementwise ops, and what they include, as text: chains of them are compiled by NVRTC at run time. NVRTC has no
# headers; two files of ours stand for the standard ones and for the definition of ops.
set(formula_sources
    base/math.h runtime/dtype.h runtime/half.h runtime/limits.h core/scalar.h
    kernels/cuda/elementwise/chain.cuh kernels/cuda/elementwise/chain_args.h kernels/cuda/elementwise/convert.cuh kernels/cuda/device/iteration.h
    ops/tensor_expr.h ops/unary_op.h ops/unary.h ops/activation.h ops/binary.h ops/ternary.h
    ops/unary.def ops/activation.def ops/binary.def ops/ternary.def
    ops/formula_device.cuh=ops/elementwise.h ops/formula_device.cuh=core/tensor.h)
foreach(name bit cmath concepts cstddef cstdint limits string_view type_traits utility)
  list(APPEND formula_sources kernels/cuda/device/device_std.cuh=${name})
endforeach()

set(formula_output "${PROJECT_BINARY_DIR}/generated/ops/formula_sources.cpp")
list(TRANSFORM formula_sources REPLACE "=.*" "" OUTPUT_VARIABLE formula_paths)
list(TRANSFORM formula_paths PREPEND "${PROJECT_SOURCE_DIR}/src/")
list(REMOVE_DUPLICATES formula_paths)
add_custom_command(OUTPUT "${formula_output}"
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${formula_output} -DFUNCTION=formula_sources -DROOT=${PROJECT_SOURCE_DIR}/src
          "-DFILES=${formula_sources}" -P "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake"
  DEPENDS ${formula_paths} "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake"
  COMMENT "Embedding the formulas of elementwise ops" VERBATIM)
target_sources(deft_ops_cuda PRIVATE "${formula_output}")
