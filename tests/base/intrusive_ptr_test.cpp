#include "base/intrusive_ptr.h"

#include <gtest/gtest.h>

namespace deft {
namespace {

struct Counted {
  int references = 1;
  int retains = 0;
  void retain() { ++references, ++retains; }
  void release() { --references; }
};
using Ptr = IntrusivePtr<Counted>;

TEST(IntrusivePtr, AdoptTakesOverOneReference) {
  Counted c;
  {
    Ptr p = Ptr::adopt(&c);
    EXPECT_EQ(c.references, 1);
    EXPECT_EQ(p.get(), &c);
    EXPECT_EQ(p->references, 1);
    EXPECT_TRUE(p);
  }
  EXPECT_EQ(c.references, 0);
}

TEST(IntrusivePtr, ShareAndCopyAddReferences) {
  Counted c;
  {
    Ptr p = Ptr::share(&c);
    EXPECT_EQ(c.references, 2);
    Ptr q = p;
    EXPECT_EQ(c.references, 3);
    EXPECT_TRUE(p == q);
  }
  EXPECT_EQ(c.references, 1);
}

TEST(IntrusivePtr, MoveNeverTouchesTheCount) {
  Counted c;
  Ptr p = Ptr::adopt(&c);
  Ptr q = std::move(p);
  EXPECT_FALSE(p);  // NOLINT(bugprone-use-after-move): moved-from is empty by contract
  Ptr r;
  r = std::move(q);
  EXPECT_EQ(c.retains, 0);
  EXPECT_EQ(c.references, 1);
  r.reset();
  EXPECT_EQ(c.references, 0);
}

TEST(IntrusivePtr, AssignmentReleasesTheOldAndSurvivesSelf) {
  Counted a, b;
  Ptr p = Ptr::adopt(&a), q = Ptr::adopt(&b);
  p = q;
  EXPECT_EQ(a.references, 0);
  EXPECT_EQ(b.references, 2);
  Ptr& self = p;
  p = self;
  EXPECT_EQ(b.references, 2);
  p = std::move(self);
  EXPECT_EQ(p.get(), &b);
  EXPECT_EQ(b.references, 2);
}

TEST(IntrusivePtr, DetachGivesUpOwnership) {
  Counted c;
  Ptr p = Ptr::adopt(&c);
  EXPECT_EQ(p.detach(), &c);
  EXPECT_FALSE(p);
  EXPECT_EQ(c.references, 1);
}

TEST(IntrusivePtr, NullIsHarmless) {
  Ptr p, q = nullptr, r = Ptr::share(nullptr);
  p = q;
  q = std::move(r);
  p.reset();
  EXPECT_FALSE(p);
  EXPECT_TRUE(p == q);
}

}  // namespace
}  // namespace deft
