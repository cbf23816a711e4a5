// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/junit.hpp"

#include <algorithm>
#include <cstddef>

#include <spdlog/fmt/fmt.h>

namespace faultline::cli {
namespace {

/// Length of the UTF-8 character at the beginning of `text`, RFC 3629; 0 if it is none or XML 1.0 (2.2, Char)
/// bars it.
size_t character_length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\n' || first == '\t' ? 1 : 0;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  unsigned code = first & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    code = code << 6U | (byte(i) & 0x3fU);
  }
  const unsigned least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < least || code > 0x10ffff || is_surrogate || code == 0xfffe || code == 0xffff) return 0;
  return length;
}

/// For text and for values in double quotes.
std::string escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = character_length(text);
    switch (length == 0 ? '\0' : text.front()) {
      case '\0':
        result += '?';
        break;
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

}  // namespace

std::string junit_text(std::string_view suite, const std::vector<JunitCase>& cases) {
  const auto failures =
      std::ranges::count_if(cases, [](const JunitCase& one) { return !one.failure_type.empty(); });
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\">\n",
      escaped(suite), cases.size(), failures);
  for (const JunitCase& one : cases) {
    text += fmt::format("<testcase classname=\"{}\" name=\"{}\"", escaped(suite), escaped(one.name));
    if (one.failure_type.empty())
      text += "/>\n";
    else
      text += fmt::format(">\n<failure type=\"{}\" message=\"{}\">{}</failure>\n</testcase>\n",
                          escaped(one.failure_type), escaped(one.message), escaped(one.text));
  }
  return text + "</testsuite>\n</testsuites>\n";
}

}  // namespace faultline::cli
