// SPDX-License-Identifier: BSD-3-Clause
#include "stack/base/file_text.hpp"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "stack/base/unique_fd.hpp"

namespace faultline {

std::optional<std::string> text_of_file(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t count = read(file.get(), piece.data(), piece.size());
    if (count == 0) return text;
    if (count > 0) text.append(piece.data(), static_cast<size_t>(count));
    if (count < 0 && errno != EINTR) return std::nullopt;
  }
}

}  // namespace faultline
