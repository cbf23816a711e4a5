// SPDX-License-Identifier: BSD-3-Clause
// Calls the C library's definition of a name that this library interposes on, or fails as it does.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>

/// Declares the drop-in's definition of a C library function under a separate C++ name. With 64-bit file
/// offsets the headers already map pairs such as open and open64 to one name. Functions with a variable
/// argument are declared with a fixed one: if the caller passed none, the register's content is passed on and
/// ignored.
#define FAULTLINE_STANDS_BEFORE(name) asm(name) __attribute__((visibility("default")))

namespace faultline::abi {

/// Sets errno, and returns what most calls of the C library return then.
[[nodiscard]] inline int fail_with(int error) {
  errno = error;
  return -1;
}

template <typename Function>
class NextCall {
 public:
  /// `instead` is called where the C library lacks the name.
  constexpr explicit NextCall(const char* name, Function* instead = nullptr)
      : name_(name), instead_(instead) {}

  /// Looked up on the first call, since other libraries' constructors call before ours have run.
  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    Function* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) function = find();
    return function(arguments...);
  }

  /// Looks the definition up. Not async-signal-safe: a constructor calls it for names that are.
  Function* find() {
    auto* function = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
    if (function == nullptr) function = instead_;
    if (function == nullptr) std::abort();  // the C library always has it
    function_.store(function, std::memory_order_relaxed);
    return function;
  }

 private:
  const char* name_;
  Function* instead_;
  std::atomic<Function*> function_{nullptr};
};

}  // namespace faultline::abi
