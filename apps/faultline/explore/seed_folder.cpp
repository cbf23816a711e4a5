// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/seed_folder.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "apps/faultline/story/story.hpp"

namespace faultline::cli {
namespace {

namespace files = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSummary = "summary.json";

/// One word of a shell's command line.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

class SeedFolder {
 public:
  SeedFolder(const std::string& folder, const RunPlan& plan, const std::string& scenario,
             const Finding& finding)
      : folder_(folder), plan_(plan), scenario_(scenario), finding_(finding) {}

  std::string write() {
    make();
    for (size_t i = 0; i < plan_.test.programs.size(); ++i) {
      write_file(file_of(folder_, "journal", i, ".jsonl"),
                 journal_text(finding_.journals[i].header, i, finding_.kept));
      write_file(file_of(folder_, "all-decisions", i, ".jsonl"),
                 journal_text(finding_.journals[i].header, i, finding_.made));
      write_file(scenario_file(i), scenario_text(fmt::format("{}, seed {}", scenario_, finding_.seed),
                                                 finding_.seed, i, finding_.kept));
      for (const char* const what : {"stdout", "stderr"}) copy(what, i);
      tell_story(i);
    }
    write_file(folder_ + "/" + kSummary, summary());
    return error_;
  }

 private:
  void fail(const std::string& path, const std::string& why) {
    if (error_.empty()) error_ = fmt::format("cannot write {}: {}", path, why);
  }

  void make() {
    std::error_code error;
    // Only what is an earlier explore's: its summary is the mark.
    if (files::exists(folder_ + "/" + kSummary, error)) files::remove_all(folder_, error);
    files::create_directories(folder_, error);
    if (error) fail(folder_, error.message());
  }

  void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    if (!file.flush()) fail(path, std::strerror(errno));
  }

  void copy(const char* what, size_t program) {
    std::error_code error;
    const std::string from = file_of(finding_.outputs, what, program);
    if (!files::exists(from, error)) return;  // a program that was not started
    const std::string to = file_of(folder_, what, program);
    files::copy_file(from, to, files::copy_options::overwrite_existing, error);
    if (error) fail(to, error.message());
  }

  [[nodiscard]] std::string scenario_file(size_t program) const {
    if (plan_.test.programs.size() == 1) return folder_ + "/scenario.toml";
    return file_of(folder_, "scenario", program, ".toml");
  }

  /// Makes pages of the recordings: a device has one each, and a process after the first a suffix.
  void tell_story(size_t program) {
    std::error_code error;
    const std::string prefix = fmt::format("recording-{}", program);
    for (const auto& entry : files::directory_iterator(finding_.outputs, error)) {
      const std::string name = entry.path().filename();
      if (name != prefix && !name.starts_with(prefix + ".")) continue;
      const std::string page = fmt::format("story-{}{}.html", program, name.substr(prefix.size()));
      if (run_story({entry.path(), folder_ + "/" + page, false}) == 0) stories_.push_back(page);
    }
  }

  [[nodiscard]] std::string replay_command(size_t program) const {
    std::string command =
        "FAULTLINE_TROUBLE_REPLAY=" + quoted(files::absolute(file_of(folder_, "journal", program, ".jsonl")));
    for (const std::string& word : start_words(plan_.test, plan_.test.programs[program], plan_.runner))
      command += " " + quoted(word);
    return command;
  }

  [[nodiscard]] std::string summary() const {
    Json json;
    json["seed"] = finding_.seed;
    json["scenario"] = scenario_;
    json["failure"] = name_of(finding_.verdict.failure);
    json["text"] = finding_.verdict.text;
    json["program"] = finding_.verdict.program;
    json["repeatable"] = finding_.is_repeatable;
    json["minimal"] = finding_.is_minimal;
    json["replays"] = finding_.replays;
    json["decisions_before"] = finding_.made.size();
    json["decisions_after"] = finding_.kept.size();
    json["like_seed"] = finding_.like ? Json(*finding_.like) : Json();
    json["decisions"] = Json::array();
    for (const Decision& decision : finding_.kept) json["decisions"].push_back(text_of(decision));
    json["commands"] = Json::array();
    for (size_t i = 0; i < plan_.test.programs.size(); ++i) json["commands"].push_back(replay_command(i));
    json["stories"] = stories_;
    if (stories_.empty())
      json["no_story"] = finding_.recording_note.empty() ? "no device of the programs recorded anything"
                                                         : finding_.recording_note;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  const std::string& folder_;
  const RunPlan& plan_;
  const std::string& scenario_;
  const Finding& finding_;
  std::vector<std::string> stories_;
  std::string error_;
};

}  // namespace

std::string write_seed_folder(const std::string& folder, const RunPlan& plan,
                              const std::string& scenario_name, const Finding& finding) {
  return SeedFolder(folder, plan, scenario_name, finding).write();
}

std::string text_of(const Finding& finding) {
  std::string text = fmt::format("seed {}: {}", finding.seed, finding.verdict.text);
  if (!finding.is_repeatable)
    text += fmt::format("; not repeatable: the program's own timing; {} decisions\n", finding.made.size());
  else if (finding.like)
    text += fmt::format("; {} decisions, the {} of seed {} suffice\n", finding.made.size(),
                        finding.kept.size(), *finding.like);
  else
    text += fmt::format("; {} decisions, {} after {} replays{}\n", finding.made.size(), finding.kept.size(),
                        finding.replays, finding.is_minimal ? "" : ", more replays may leave fewer");
  if (!finding.is_repeatable) return text;
  for (const Decision& decision : finding.kept) text += "  " + text_of(decision) + "\n";
  return text;
}

}  // namespace faultline::cli
