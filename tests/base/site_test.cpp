#include "base/site.h"

#include <gtest/gtest.h>

#include "base/function_ref.h"

namespace deft {
namespace {

Site here(Site site = Site::current()) { return site; }

TEST(Site, NamesFileAndLineOfTheCaller) {
  Site site = here();
  EXPECT_EQ(to_string(site), "site_test.cpp:" + std::to_string(__LINE__ - 1));
}

TEST(Site, DefaultIsAnUnknownPlace) { EXPECT_EQ(to_string(Site()), "an unknown place"); }

int twice(int x) { return 2 * x; }

TEST(FunctionRef, CallsLambdasFunctionsAndConstObjects) {
  int calls = 0;
  auto counting = [&](int x) { return calls += x; };
  FunctionRef<int(int)> f = counting;
  EXPECT_EQ(f(3), 3);
  EXPECT_EQ(f(4), 7);
  EXPECT_EQ(calls, 7);
  FunctionRef<int(int)> copy = f;
  EXPECT_EQ(copy(1), 8);
  const auto constant = [](int x) { return x + 1; };
  EXPECT_EQ(FunctionRef<int(int)>(constant)(1), 2);
  auto* pointer = &twice;
  EXPECT_EQ(FunctionRef<int(int)>(pointer)(21), 42);
}

}  // namespace
}  // namespace deft
