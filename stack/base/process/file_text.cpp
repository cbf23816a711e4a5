// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/process/file_text.hpp"

#include <array>
#include <cstdio>
#include <memory>

namespace faultline {

std::optional<std::string> text_of_file(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (file == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece;
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file.get()))
    text.append(piece.data(), count);
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return text;
}

}  // namespace faultline
