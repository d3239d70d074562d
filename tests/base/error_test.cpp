#include "base/error.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace deft {
namespace {

std::string message_of(auto&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Error, CheckThrowsTheNamedTypeWithItsText) {
  int rows = 3;
  std::string name = "x";
  auto failing = [&] { DEFT_CHECK(rows == 4, ShapeError, "matmul: found {} rows in {}, expected {}", rows, name, 4); };
  EXPECT_THROW(failing(), ShapeError);
  EXPECT_EQ(message_of(failing), "matmul: found 3 rows in x, expected 4");
}

TEST(Error, PassingCheckDoesNotEvaluateItsArguments) {
  int evaluated = 0;
  auto count = [&] { return ++evaluated; };
  EXPECT_NO_THROW(DEFT_CHECK(true, ValueError, "{}", count()));
  EXPECT_EQ(evaluated, 0);
}

TEST(Error, CheckIsOneStatement) {
  bool reached_else = false;
  if (false)
    DEFT_CHECK(false, ValueError, "not reached");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(Error, TypesFormFamilies) {
  EXPECT_THROW(DEFT_FAIL(InplaceError, "a"), GradError);
  EXPECT_THROW(DEFT_FAIL(InferenceError, "a"), GradError);
  EXPECT_THROW(DEFT_FAIL(OutOfMemoryError, "a"), Error);
  EXPECT_THROW(DEFT_FAIL(DTypeError, "a"), std::runtime_error);
}

TEST(Error, AssertNamesConditionAndPlace) {
  auto failing = [] { DEFT_ASSERT(1 + 1 == 3); };
  EXPECT_THROW(failing(), InternalError);
  std::string text = message_of(failing);
  EXPECT_NE(text.find("1 + 1 == 3"), text.npos) << text;
  EXPECT_NE(text.find("error_test.cpp:"), text.npos) << text;
}

}  // namespace
}  // namespace deft
