#if defined(__x86_64__)

#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/x86/tiles.h"

namespace deft::cpu {

bool amx_permitted() {
  // Constants of the kernel's asm/prctl.h, which older systems lack.
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool permitted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return permitted;
}

}  // namespace deft::cpu

#endif
