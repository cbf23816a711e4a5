// SPDX-License-Identifier: BSD-3-Clause
// Lines from standard input: with editing, history and completion on a terminal, plain otherwise.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <histedit.h>

namespace faultline::perf {

/// Splits a line at blanks.
[[nodiscard]] std::vector<std::string> words_of(const std::string& line);

class LineInput {
 public:
  /// Returns the words that may follow the given ones.
  using Candidates = std::function<std::vector<std::string>(const std::vector<std::string>& before)>;

  /// `prompt` has static storage. The editor prints to stderr, so that stdout has results alone.
  LineInput(const char* prompt, Candidates candidates);
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  /// Standard input and stderr are a terminal.
  [[nodiscard]] bool on_terminal() const { return editor_ != nullptr; }
  /// Returns the next line without its newline; nullopt at the end of the input.
  [[nodiscard]] std::optional<std::string> next();

 private:
  struct EndEditor {
    void operator()(EditLine* editor) const { el_end(editor); }
  };
  struct EndHistory {
    void operator()(History* history) const { history_end(history); }
  };

  void start_editor();
  [[nodiscard]] unsigned char complete();
  static unsigned char on_tab(EditLine* editor, int character);
  static char* prompt_of(EditLine* editor);
  static LineInput& owner_of(EditLine* editor);

  const char* prompt_;
  Candidates candidates_;
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditor> editor_;  // ends before its history
};

}  // namespace faultline::perf
