#pragma once

namespace deft::cli {

enum ExitCode : int {
  kOk = 0,
  kRegression = 1,
  kUsage = 2,
  kUnsupported = 3,
  kFindings = 4,
  kOutOfMemory = 5,
  kInternal = 70,
  kInterrupted = 130,  // as a shell reports Ctrl-C
};

}  // namespace deft::cli
