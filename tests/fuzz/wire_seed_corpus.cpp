// SPDX-License-Identifier: BSD-3-Clause
// Writes each distinct frame of the golden captures as a file of its own into a directory: libFuzzer's seeds.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/unit/wire/capture.hpp"

int main(int argc, char** argv) {
  using namespace faultline::wire::test;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  std::set<Frame> seeds;
  for (const auto& capture : golden_captures())
    for (Frame& frame : read_capture(capture)) seeds.insert(std::move(frame));
  size_t number = 0;
  for (const Frame& seed : seeds) {
    std::ofstream file(directory / std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
    if (!file) {
      std::fprintf(stderr, "%s: cannot write seed %zu\n", directory.c_str(), number);
      return 1;
    }
  }
  std::printf("%zu seeds\n", number);
  return 0;
}
