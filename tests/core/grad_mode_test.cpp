// no_grad, enable_grad, set_grad_enabled: guards, functions, sticky calls, exceptions and coroutines.
#include <coroutine>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "core/context_carrier.h"
#include "core_util.h"

namespace deft {
namespace {

TEST(GradMode, GuardsNest) {
  EXPECT_TRUE(is_grad_enabled());
  {
    NoGradGuard off;
    EXPECT_FALSE(is_grad_enabled());
    {
      EnableGradGuard on;
      EXPECT_TRUE(is_grad_enabled());
      {
        GradModeGuard off_again(false);
        EXPECT_FALSE(is_grad_enabled());
        NoGradGuard more;
        EXPECT_FALSE(is_grad_enabled());
      }
      EXPECT_TRUE(is_grad_enabled());
      Tensor x = leaf({2});
      EXPECT_TRUE((x * x).requires_grad());
    }
    EXPECT_FALSE(is_grad_enabled());
  }
  EXPECT_TRUE(is_grad_enabled());
}

TEST(GradMode, GuardsCannotBeCopiedOrMoved) {
  static_assert(!std::is_copy_constructible_v<NoGradGuard> && !std::is_move_constructible_v<NoGradGuard>);
  static_assert(!std::is_copy_assignable_v<EnableGradGuard> && !std::is_move_assignable_v<EnableGradGuard>);
  static_assert(!std::is_move_constructible_v<InferenceModeGuard> && !std::is_move_constructible_v<GradModeGuard>);
}

TEST(GradMode, ExceptionsRestore) {
  try {
    NoGradGuard off;
    EnableGradGuard on;
    NoGradGuard again;
    throw std::runtime_error("x");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_THROW(no_grad([] { throw std::runtime_error("x"); }), std::runtime_error);
  EXPECT_THROW(inference_mode([] { throw std::runtime_error("x"); }), std::runtime_error);
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_FALSE(is_inference_mode_enabled());
}

TEST(GradMode, FunctionForms) {
  EXPECT_FALSE(no_grad([] { return is_grad_enabled(); }));
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_TRUE(no_grad([] { return enable_grad([] { return is_grad_enabled(); }); }));
  EXPECT_TRUE(inference_mode([] { return is_inference_mode_enabled(); }));
  EXPECT_FALSE(inference_mode(false, [] { return is_inference_mode_enabled(); }));
  int depth = 0;
  auto recurse = [&](auto& self) -> void {  // re-entrant
    no_grad([&] {
      EXPECT_FALSE(is_grad_enabled());
      if (++depth < 5) self(self);
      EXPECT_FALSE(is_grad_enabled());
    });
  };
  recurse(recurse);
  EXPECT_TRUE(is_grad_enabled());
  Tensor x = leaf({2});
  Tensor& same = no_grad([&]() -> Tensor& { return x; });
  EXPECT_EQ(&same, &x) << "references pass through";
}

TEST(GradMode, SetGradEnabledIsSticky) {
  {
    GradModeGuard outer(true);
    set_grad_enabled(false);
    EXPECT_FALSE(is_grad_enabled());
    {
      EnableGradGuard on;
      set_grad_enabled(false);
      set_grad_enabled(true);
      EXPECT_TRUE(is_grad_enabled());
    }
    EXPECT_FALSE(is_grad_enabled()) << "still off";
  }
  EXPECT_TRUE(is_grad_enabled()) << "an enclosing guard restores";
  std::thread([] {
    set_grad_enabled(false);
    EXPECT_FALSE(is_grad_enabled());
  }).join();
  EXPECT_TRUE(is_grad_enabled()) << "only for its own thread";
}

TEST(GradMode, GradModeDoesNotTouchInferenceMode) {
  InferenceModeGuard inference;
  EnableGradGuard on;
  EXPECT_TRUE(is_inference_mode_enabled());
}

TEST(GradMode, ConstantsJoinLaterGraphs) {
  Tensor x = leaf({3});
  Alive before;
  Tensor c = no_grad([&] { return x * 3; });
  EXPECT_EQ(Alive().saved, before.saved);
  EXPECT_EQ(Alive().nodes, before.nodes);
  (c * x).sum().backward();
  expect_close(x.grad(), x.detach() * 3);
}

TEST(GradMode, BackwardDoesNotDependOnTheCallersMode) {
  Tensor x = leaf({3});
  Tensor y = (x * x * x).sum();
  no_grad([&] { y.backward({.create_graph = true}); });
  EXPECT_TRUE(x.grad().requires_grad()) << "create_graph decides, not the caller's mode";
  x.zero_grad();
  Tensor z = (x * x).sum();
  inference_mode([&] { z.backward(); });
  EXPECT_FALSE(x.grad().requires_grad());
  EXPECT_FALSE(x.grad().is_inference()) << "gradients are normal tensors";
  expect_close(x.grad(), x.detach() * 2);
  Tensor w = (x * x).sum();
  w.backward();  // grad mode on, create_graph off
  EXPECT_FALSE(x.grad().requires_grad()) << "accumulation records nothing";
}

// --- Coroutines ------------------------------------------------------------------------------------------------

// A generator of bools, as a user would write it.
struct Generator {
  struct promise_type : ContextCarrier {
    bool value = false;
    Generator get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    auto initial_suspend() noexcept { return carry(std::suspend_always{}); }
    auto final_suspend() noexcept { return carry(std::suspend_always{}); }
    auto yield_value(bool v) noexcept {
      value = v;
      return carry(std::suspend_always{});
    }
    void return_void() {}
    void unhandled_exception() { throw; }
  };
  std::coroutine_handle<promise_type> handle;
  Generator(std::coroutine_handle<promise_type> h) : handle(h) {}
  Generator(Generator&& o) noexcept : handle(std::exchange(o.handle, nullptr)) {}
  ~Generator() {
    if (handle) destroy_carried(handle);
  }
  bool next() {
    handle.resume();
    return handle.promise().value;
  }
  bool done() const { return handle.done(); }
};

Generator modes() {
  co_yield is_grad_enabled();
  {
    NoGradGuard off;
    co_yield is_grad_enabled();
    co_yield is_grad_enabled();
    co_await std::suspend_always{};
    co_yield is_grad_enabled();
  }
  co_yield is_grad_enabled();
}

TEST(Coroutine, GuardDoesNotLeakOutAndComesBack) {
  Generator g = modes();
  EXPECT_TRUE(g.next());
  EXPECT_FALSE(g.next());
  EXPECT_TRUE(is_grad_enabled()) << "suspended inside its guard: the caller's mode is its own";
  EXPECT_FALSE(g.next()) << "and it is there again after resuming";
  EXPECT_TRUE(is_grad_enabled());
  g.next();  // the co_await
  EXPECT_TRUE(is_grad_enabled());
  {
    NoGradGuard callers;
    EXPECT_FALSE(g.next());
    EXPECT_TRUE(g.next()) << "the caller's guard does not get in either";
    EXPECT_FALSE(is_grad_enabled());
  }
  g.next();
  EXPECT_TRUE(g.done());
  EXPECT_TRUE(is_grad_enabled());
}

TEST(Coroutine, StartsWithTheModeOfItsCreator) {
  Generator g = no_grad([] { return modes(); });
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_FALSE(g.next());
}

TEST(Coroutine, MayBeResumedOnAnotherThread) {
  Generator g = modes();
  g.next();
  EXPECT_FALSE(g.next());
  std::thread([&] {
    EXPECT_FALSE(g.next());
    EXPECT_TRUE(is_grad_enabled());
  }).join();
  g.next();
  EXPECT_FALSE(g.next());
  EXPECT_TRUE(g.next());
}

TEST(Coroutine, DestroyedWhileItsGuardIsAlive) {
  NoGradGuard callers;
  {
    Generator g = enable_grad([] { return modes(); });
    g.next();
    g.next();
  }
  EXPECT_FALSE(is_grad_enabled()) << "the coroutine's guard must not restore into our context";
}

Generator interleaved(bool off) {
  GradModeGuard guard(!off);
  for (int i = 0; i < 3; ++i) co_yield is_grad_enabled();
}
TEST(Coroutine, TwoInterleaved) {
  Generator a = interleaved(true), b = interleaved(false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(a.next());
    EXPECT_TRUE(b.next());
  }
  EXPECT_TRUE(is_grad_enabled());
}

}  // namespace
}  // namespace deft
