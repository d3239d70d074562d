#include "runtime/numerics.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace deft {
namespace {

// Variables are read once, so each value needs a process of its own.
TEST(NumericsEnv, SwitchesComeFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_if = [](const char* name, const char* value, bool (*get)(), bool want) {
    setenv(name, value, 1);
    std::_Exit(get() == want ? 0 : 1);
  };
  const auto ok = testing::ExitedWithCode(0);
  EXPECT_EXIT(exit_if("DEFT_SPLIT_F32", "0", split_f32, false), ok, "");
  EXPECT_EXIT(exit_if("DEFT_SPLIT_F32", "1", split_f32, true), ok, "");
  EXPECT_EXIT(exit_if("DEFT_SPLIT_F32", "", split_f32, true), ok, "");
  EXPECT_EXIT(exit_if("DEFT_ALLOW_TF32", "1", allow_tf32, true), ok, "");
  EXPECT_EXIT(exit_if("DEFT_SPLIT_F32", "off", split_f32, true), ok,
              "DEFT_SPLIT_F32=off is neither 0 nor 1; it stays on");
  EXPECT_EXIT(exit_if("DEFT_WINOGRAD", "yes", conv_winograd, false), ok, "neither 0 nor 1; it stays off");
}

}  // namespace
}  // namespace deft
