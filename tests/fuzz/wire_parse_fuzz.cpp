// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: any bytes as a received frame. The property is check_parse's; wire_test replays it over
// the same seeds.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/unit/wire/meaning.hpp"

extern "C" [[gnu::visibility("default")]] int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string wrong = faultline::wire::test::check_parse({data, bytes});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
