# deft_unity(<target> <files>): compiles the sources of a target in batches of <files>, so that the headers they share are read
# once per batch. Names local to a file must then differ in the whole folder. DEFT_UNITY=OFF (the debug preset) shows
# that every file still includes what it uses.
option(DEFT_UNITY "Compile some files of a folder at a time" ON)

function(deft_unity target files)
  if(DEFT_UNITY)
    # What only builds with CUDA compile stays alone, so that batches are the same in all of them.
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cuda\\.cpp$")
    set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    # Files with options of their own stay alone: CMake sees to that. Those that Highway compiles once per target have some.
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)  # they look like headers to it
  endif()
endfunction()
