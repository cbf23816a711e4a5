// SPDX-License-Identifier: BSD-3-Clause
// The C library's function behind one of its names that this library stands before.
#pragma once

#include <atomic>
#include <cstdlib>

#include <dlfcn.h>

/// A function of the C library's that the drop-in stands before, under a C++ name of its own: with 64-bit
/// file offsets the headers have already made one name of pairs such as open and open64. Those that take a
/// variable argument are declared with it as a fixed one: where the caller gave none, what the register holds
/// is passed on and heeded by nobody.
#define FAULTLINE_STANDS_BEFORE(name) asm(name) __attribute__((visibility("default")))

namespace faultline::abi {

template <typename Function>
class NextCall {
 public:
  constexpr explicit NextCall(const char* name) : name_(name) {}

  /// Looked up the first time: constructors of other libraries call before our own have run.
  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
      if (function == nullptr) std::abort();  // there is no C library without it
      function_.store(function, std::memory_order_relaxed);
    }
    return function(arguments...);
  }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace faultline::abi
