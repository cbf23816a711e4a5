// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/eal/eal_output.hpp"

#include <cstdarg>
#include <cstdio>

namespace faultline::glue {
namespace {

thread_local bool t_is_dropped = false;

}  // namespace

EalOutputDropped::EalOutputDropped() {
  t_is_dropped = true;
}
EalOutputDropped::~EalOutputDropped() {
  t_is_dropped = false;
}

}  // namespace faultline::glue

// The output functions that Debian's librte_eal.a calls. -Wl,--wrap renames them in what is linked with it.
extern "C" {
int __wrap___printf_chk(int flag, const char* format, ...);
int __wrap_puts(const char* text);
int __wrap_putchar(int character);
int __real_puts(const char* text);
int __real_putchar(int character);

int __wrap___printf_chk(int /*flag*/, const char* format, ...) {
  if (faultline::glue::t_is_dropped) return 0;
  va_list arguments;
  va_start(arguments, format);
  const int printed = std::vprintf(format, arguments);
  va_end(arguments);
  return printed;
}

int __wrap_puts(const char* text) {
  return faultline::glue::t_is_dropped ? 0 : __real_puts(text);
}

int __wrap_putchar(int character) {
  return faultline::glue::t_is_dropped ? character : __real_putchar(character);
}
}
