#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace llm {

/// One T for each thread that asks, made then and destroyed when the thread ends. For what
/// thread_local cannot be: where memory for a destructor's registration is refused, glibc ends the
/// process (__cxa_thread_atexit_impl); here it is std::bad_alloc. For variables of static storage
/// duration. The main thread's T is left to the end of the process.
template <typename T>
class PerThread {
 public:
  PerThread() {
    if (pthread_key_create(&key_, [](void* mine) { delete static_cast<T*>(mine); }) != 0)
      throw std::bad_alloc();
  }
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  /// The calling thread's. Throws std::bad_alloc. Cost: a few nanoseconds after the first call.
  T& mine() const {
    if (void* const made = pthread_getspecific(key_)) return *static_cast<T*>(made);
    auto made = std::make_unique<T>();
    if (pthread_setspecific(key_, made.get()) != 0) throw std::bad_alloc();
    return *made.release();
  }

 private:
  pthread_key_t key_{};
};

}  // namespace llm
