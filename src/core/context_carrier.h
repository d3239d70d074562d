// Coroutines and modes: a mode set by a guard inside a coroutine must not leak to the thread that resumes it, and must
// be restored after every suspension, on any thread.
#pragma once

#include <coroutine>
#include <utility>

#include "runtime/context.h"

namespace deft {

// Base of a promise type. The coroutine starts with the context of its creator. Write its own suspension points through
// carry(): `auto initial_suspend() { return carry(std::suspend_always{}); }`, the same for final_suspend() and
// yield_value(); co_await is covered by await_transform(). Destroy the coroutine through destroy_carried().
class ContextCarrier {
 public:
  template <class Awaiter>
  struct Carried {
    ContextCarrier* carrier;
    Awaiter inner;
    bool suspended = false;
    bool await_ready() noexcept(noexcept(inner.await_ready())) { return inner.await_ready(); }
    template <class Promise>
    auto await_suspend(std::coroutine_handle<Promise> h) noexcept(noexcept(inner.await_suspend(h))) {
      // Before the awaiter runs: it may hand the coroutine to another thread, which resumes it at once.
      suspended = true;
      carrier->leave();
      return inner.await_suspend(h);
    }
    decltype(auto) await_resume() noexcept(noexcept(inner.await_resume())) {
      if (suspended) carrier->enter();
      return inner.await_resume();
    }
  };

  ContextCarrier() : inside_(context()), outside_(context()) {}
  template <class Awaiter>
  Carried<Awaiter> carry(Awaiter awaiter) noexcept {
    return {this, std::move(awaiter)};
  }
  template <class Awaiter>
  Carried<std::remove_cvref_t<Awaiter>> await_transform(Awaiter&& awaiter) {
    return {this, std::forward<Awaiter>(awaiter)};
  }

 private:
  [[gnu::noinline]] void leave() noexcept {
    inside_ = context();
    context() = outside_;
  }
  [[gnu::noinline]] void enter() noexcept {
    outside_ = context();
    context() = inside_;
  }
  ExecContext inside_, outside_;
};

// Guards alive in the coroutine must not restore their modes into the destroyer's context.
template <class Promise>
void destroy_carried(std::coroutine_handle<Promise> h) {
  ContextGuard keep(context());
  h.destroy();
}

}  // namespace deft
