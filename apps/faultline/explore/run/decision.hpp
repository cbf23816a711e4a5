// SPDX-License-Identifier: BSD-3-Clause
// The decisions that trouble made in one run of a program: its journal, JSON lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace faultline::cli {

struct Decision {
  size_t program = 0;  ///< index of the program whose journal has it
  std::string rule;
  std::string event;  ///< with `object` and `n` its place: the n-th event of that kind on that object
  std::string object;
  uint64_t n = 0;
  nlohmann::ordered_json action;  ///< the table `do`
  std::string line;               ///< of the journal, without its end

  /// Returns whether both make the same at the same place.
  [[nodiscard]] bool is_same(const Decision& other) const;
};

/// "program 0: call ibv_post_send, faultline0 qp 0, n 3: errno ENOMEM"
[[nodiscard]] std::string text_of(const Decision& decision);

struct Journal {
  std::string header;  ///< the first line; "" without a journal
  std::vector<Decision> decisions;
};

/// Reads a journal's text. A line that is not a decision, as the last one of a program that was killed, is
/// left out. Several processes may have written one journal: later headers are left out.
[[nodiscard]] Journal parse_journal(std::string_view text, size_t program);

/// Returns the text of a journal of `program` with the `kept` decisions of all programs that are its own.
[[nodiscard]] std::string journal_text(const std::string& header, size_t program,
                                       const std::vector<Decision>& kept);

/// Returns a header for a program without a journal.
[[nodiscard]] std::string make_header(const std::string& scenario, uint64_t seed, const std::string& program);

/// Returns a scenario with one rule for each decision of `program`; `name` becomes the scenario's.
[[nodiscard]] std::string scenario_text(const std::string& name, uint64_t seed, size_t program,
                                        const std::vector<Decision>& kept);

}  // namespace faultline::cli
