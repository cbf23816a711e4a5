// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/prompt/line_input.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include <unistd.h>

namespace faultline::perf {

namespace {

constexpr int kHistoryLines = 500;

/// Returns the longest begin that all words share. `words` has one at least.
std::string common_begin(const std::vector<std::string>& words) {
  std::string begin = words.front();
  for (const std::string& word : words) {
    const auto differs = std::mismatch(begin.begin(), begin.end(), word.begin(), word.end()).first;
    begin.erase(differs, begin.end());
  }
  return begin;
}

}  // namespace

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

LineInput::LineInput(const char* prompt, Candidates candidates)
    : prompt_(prompt), candidates_(std::move(candidates)) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) start_editor();
}

void LineInput::start_editor() {
  history_.reset(history_init());
  editor_.reset(el_init("faultline-perf", stdin, stderr, stderr));
  if (!history_ || !editor_)
    throw std::runtime_error("the line editor does not start; give the commands in a file");
  HistEvent event;
  history(history_.get(), &event, H_SETSIZE, kHistoryLines);
  history(history_.get(), &event, H_SETUNIQUE, 1);
  EditLine* editor = editor_.get();
  el_set(editor, EL_CLIENTDATA, this);
  el_set(editor, EL_PROMPT, prompt_of);
  el_set(editor, EL_SIGNAL, 1);  // restores the terminal before a signal ends the program
  el_set(editor, EL_HIST, history, history_.get());
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_ADDFN, "complete", "complete the word", on_tab);
  el_set(editor, EL_BIND, "^I", "complete", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_source(editor, nullptr);  // the user's ~/.editrc, editrc(5)
}

std::optional<std::string> LineInput::next() {
  std::string line;
  if (!on_terminal()) {
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  int length = 0;
  const char* text = el_gets(editor_.get(), &length);
  if (text == nullptr || length <= 0) {
    std::fputc('\n', stderr);
    return std::nullopt;
  }
  line.assign(text, static_cast<size_t>(length));
  if (words_of(line).empty()) return std::string();
  HistEvent event;
  history(history_.get(), &event, H_ENTER, line.c_str());
  if (line.back() == '\n') line.pop_back();
  return line;
}

LineInput& LineInput::owner_of(EditLine* editor) {
  void* owner = nullptr;
  el_get(editor, EL_CLIENTDATA, &owner);
  return *static_cast<LineInput*>(owner);
}

char* LineInput::prompt_of(EditLine* editor) {
  return const_cast<char*>(owner_of(editor).prompt_);
}

unsigned char LineInput::on_tab(EditLine* editor, int /*character*/) {
  return owner_of(editor).complete();
}

/// Completes the word before the cursor, or lists what it may become.
unsigned char LineInput::complete() {
  const LineInfo* info = el_line(editor_.get());
  const std::string text(info->buffer, info->cursor);
  std::vector<std::string> before = words_of(text);
  std::string word;
  if (!text.empty() && text.back() != ' ' && !before.empty()) {
    word = before.back();
    before.pop_back();
  }
  std::vector<std::string> found = candidates_(before);
  std::erase_if(found, [&](const std::string& candidate) { return !candidate.starts_with(word); });
  if (found.empty()) return CC_ERROR;
  std::string rest = common_begin(found).substr(word.size());
  if (found.size() == 1) rest += ' ';
  if (!rest.empty()) return el_insertstr(editor_.get(), rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  std::fputc('\n', stderr);
  for (const std::string& candidate : found) std::fprintf(stderr, "%s  ", candidate.c_str());
  std::fputc('\n', stderr);
  return CC_REDISPLAY;
}

}  // namespace faultline::perf
