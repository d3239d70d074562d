# Run by DeftIdentity.cmake: cmake -DOUTPUT=... -DROOT=... -DFILES=... -DPREFIX=... -P write_identity.cmake
set(all "")
foreach(file IN LISTS FILES)
  file(SHA256 "${ROOT}/${file}" hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 16 hash)
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#pragma once
#define DEFT_BUILD_IDENTITY \"${PREFIX}-${hash}\"
")
