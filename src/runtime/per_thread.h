// One T per thread, on the heap: a library that programs load late has little room for thread-local variables. It is
// destroyed when its thread ends, after the thread's own variables; that of the main thread lives as long as the
// process, so that destructors of statics find it. Whoever comes after the destruction gets a fresh one.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace deft {

template <class T>
class PerThread {
 public:
  static T& get() {
    if (void* known = ::pthread_getspecific(key())) [[likely]]
      return *static_cast<T*>(known);
    auto fresh = std::make_unique<T>();
    if (::pthread_setspecific(key(), fresh.get()) != 0) throw std::bad_alloc();
    return *fresh.release();
  }

 private:
  static pthread_key_t key() {
    static const pthread_key_t key = [] {
      pthread_key_t made = 0;
      if (::pthread_key_create(&made, [](void* value) { delete static_cast<T*>(value); }) != 0) throw std::bad_alloc();
      return made;
    }();
    return key;
  }
};

}  // namespace deft
