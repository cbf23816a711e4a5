// SPDX-License-Identifier: BSD-3-Clause
// A library that writes $NOISE to the stdout of each program that loads it, as a logger that a program brings
// along may do. For LD_PRELOAD.
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace {

[[gnu::constructor]] void write_noise() {
  const char* const text = std::getenv("NOISE");
  if (text == nullptr) return;
  const ssize_t written = write(STDOUT_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

}  // namespace
