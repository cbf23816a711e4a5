// SPDX-License-Identifier: BSD-3-Clause
// Writes scripts for core_fuzz and link_fuzz into a directory: each golden capture as the frames that a live
// QP would get, and work for the QPs between them.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/wire/capture.hpp"

int main(int argc, char** argv) {
  using namespace faultline::wire::test;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  size_t number = 0;
  for (const auto& capture : golden_captures()) {
    std::vector<char> script;
    unsigned frames = 0;
    for (const Frame& frame : read_capture(capture)) {
      if (frame.size() >= 1200 || ++frames > 40) continue;
      const auto add = [&script](unsigned value) { script.push_back(static_cast<char>(value)); };
      // A receive and a send first, so that requests and answers find something.
      for (const unsigned byte : {12U, 0U, 0U, 0U, 16U, 0U, 0U, 0U, 11U, 0U, frames % 12, 2U}) add(byte);
      for (int i = 0; i < 24; ++i) add(0);
      add(10);
      add(frames % 6);
      add(static_cast<unsigned>(frame.size() & 0xff));
      add(static_cast<unsigned>(frame.size() >> 8));
      script.insert(script.end(), frame.begin(), frame.end());
    }
    std::ofstream file(directory / std::to_string(number++), std::ios::binary);
    file.write(script.data(), static_cast<std::streamsize>(script.size()));
    if (!file) {
      std::fprintf(stderr, "%s: cannot write seed %zu\n", directory.c_str(), number);
      return 1;
    }
  }
  std::printf("%zu seeds\n", number);
  return 0;
}
