// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/explore/run/run_test.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/faultline/explore/run/listening_port.hpp"

namespace faultline::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// For programs that were sent SIGTERM, and for the others after one has failed: they may report its end.
constexpr milliseconds kGrace{1000};
constexpr milliseconds kListenPause{10};
constexpr size_t kMostText_bytes = 16U << 20U;

/// Variables that a run sets itself.
constexpr std::array<std::string_view, 9> kOwnVariables{
    "FAULTLINE_TROUBLE",        "FAULTLINE_TROUBLE_SEED", "FAULTLINE_TROUBLE_JOURNAL",
    "FAULTLINE_TROUBLE_REPLAY", "FAULTLINE_RECORD",       "FAULTLINE_RECORD_SIZE",
    "XDG_RUNTIME_DIR",          "EXPLORE_FOLDER",         "EXPLORE_JOB"};
// Megabytes: the newest events stay.
constexpr const char* kRecordSize = "FAULTLINE_RECORD_SIZE=8";

std::vector<std::string> inherited_environment() {
  std::vector<std::string> variables;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::find(kOwnVariables, name) == kOwnVariables.end()) variables.emplace_back(text);
  }
  return variables;
}

class Run {
 public:
  Run(const RunPlan& plan, const Trouble& trouble, const std::string& folder, size_t job,
      const NetworkFds& network)
      : plan_(plan), trouble_(trouble), folder_(folder), job_(job), network_(network) {}

  Outcome perform() {
    Outcome outcome;
    if (outcome.mistake = make_folder(); !outcome.mistake.empty()) return outcome;
    const size_t count = plan_.test.programs.size();
    processes_.resize(count);
    ends_.resize(count);
    deadline_ = Clock::now() + plan_.timeout;
    if (outcome.mistake = start_all(); outcome.mistake.empty()) wait_for_all();
    end_all();
    end_orphans(folder_variable());
    outcome.is_stopped = is_stopped_;
    if (!outcome.mistake.empty() || is_stopped_) return outcome;
    read_reports();
    outcome.verdict = judge(ends_, plan_.allowed, std::nullopt);
    if (outcome.verdict.failure == Failure::none && !plan_.pass.empty()) check_output(outcome);
    for (size_t i = 0; i < count; ++i)
      outcome.journals.push_back(parse_journal(read_text(file_of(folder_, "journal", i, ".jsonl")), i));
    return outcome;
  }

 private:
  [[nodiscard]] std::string folder_variable() const { return "EXPLORE_FOLDER=" + folder_; }
  [[nodiscard]] const TestProgram& program(size_t i) const { return plan_.test.programs[i]; }

  std::string make_folder() {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    std::filesystem::create_directories(folder_ + "/rt", error);
    if (!error) std::filesystem::permissions(folder_ + "/rt", std::filesystem::perms::owner_all, error);
    if (error) return fmt::format("{}: {}", folder_, error.message());
    for (size_t i = 0; i < trouble_.journals.size(); ++i) {
      const std::string path = file_of(folder_, "replay", i, ".jsonl");
      std::ofstream file(path, std::ios::binary);
      file << trouble_.journals[i];
      if (!file.flush()) return fmt::format("{}: {}", path, std::strerror(errno));
    }
    return "";
  }

  [[nodiscard]] std::vector<std::string> environment_of(size_t i) const {
    std::vector<std::string> variables = inherited_environment();
    variables.push_back(folder_variable());
    variables.push_back(fmt::format("EXPLORE_JOB={}", job_));
    variables.push_back("XDG_RUNTIME_DIR=" + folder_ + "/rt");
    if (trouble_.kind != TroubleKind::none)
      variables.push_back("FAULTLINE_TROUBLE_JOURNAL=" + file_of(folder_, "journal", i, ".jsonl"));
    if (trouble_.kind == TroubleKind::seed) {
      variables.push_back("FAULTLINE_TROUBLE=" + plan_.scenario);
      variables.push_back(fmt::format("FAULTLINE_TROUBLE_SEED={}", trouble_.seed));
    }
    if (trouble_.kind == TroubleKind::replay)
      variables.push_back("FAULTLINE_TROUBLE_REPLAY=" + file_of(folder_, "replay", i, ".jsonl"));
    if (trouble_.is_recorded) {
      variables.push_back("FAULTLINE_RECORD=" + file_of(folder_, "recording", i));
      variables.emplace_back(kRecordSize);
    }
    return variables;
  }

  /// Returns what could not be done, or "".
  std::string start_all() {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (!pause(milliseconds(program(i).delay_ms))) return "";
      const int error =
          processes_[i].start({start_words(plan_.test, program(i), plan_.runner), environment_of(i),
                               file_of(folder_, "stdout", i), file_of(folder_, "stderr", i), network_});
      if (error != 0) return fmt::format("program {} cannot be started: {}", i, std::strerror(error));
      while (program(i).listens != 0 && !listens(processes_[i].id(), program(i).listens))
        if (processes_[i].has_ended() || !pause(kListenPause)) break;
    }
    return "";
  }

  /// Returns whether the run shall go on.
  bool pause(milliseconds duration) {
    const auto until = std::min(Clock::now() + duration, deadline_);
    while (!is_stopped_ && Clock::now() < until) wait_until(until, {});
    return !is_stopped_ && Clock::now() < deadline_;
  }

  /// Waits for the end of one of the programs `waited_for`, for stop_fd, or for the time.
  void wait_until(Clock::time_point until, const std::vector<size_t>& waited_for) {
    std::vector<pollfd> fds{{plan_.stop_fd, POLLIN, 0}};
    for (const size_t i : waited_for) fds.push_back({processes_[i].ended_fd(), POLLIN, 0});
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000)));
    if (fds[0].revents != 0) is_stopped_ = true;
  }

  [[nodiscard]] std::vector<size_t> running(bool with_servers) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < processes_.size(); ++i)
      if (processes_[i].is_started() && (with_servers || program(i).is_awaited)) found.push_back(i);
    return found;
  }

  /// Takes the ends of programs that have ended by themselves. Returns whether one of them failed.
  bool take_ends() {
    bool has_failed = false;
    for (const size_t i : running(true)) {
      if (!processes_[i].has_ended()) continue;
      take_end(i, Ending::exited);
      has_failed = has_failed || failure_of(ends_[i], plan_.allowed) != Failure::none;
    }
    return has_failed;
  }

  void take_end(size_t i, Ending ending) {
    const int status = processes_[i].end();
    ProgramEnd& end = ends_[i];
    end.order = order_++;
    end.ending = ending;
    if (WIFSIGNALED(status))
      end.signal = WTERMSIG(status);
    else
      end.status = WEXITSTATUS(status);
    if (ending == Ending::exited && end.signal != 0) end.ending = Ending::signaled;
  }

  void wait_for_all() {
    auto until = deadline_;
    bool has_failed = false;
    while (!is_stopped_) {
      if (take_ends() && !has_failed) {
        has_failed = true;
        until = std::min(until, Clock::now() + kGrace);
      }
      if (running(false).empty()) break;
      if (Clock::now() >= until) {
        rest_ = has_failed ? Ending::ended : Ending::timed_out;
        break;
      }
      wait_until(until, running(true));
    }
  }

  /// Ends the servers and what has not ended in time.
  void end_all() {
    for (const size_t i : running(true)) processes_[i].send(SIGTERM);
    const auto until = Clock::now() + kGrace;
    std::vector<size_t> left = running(true);
    while (!left.empty() && Clock::now() < until && !is_stopped_) {
      wait_until(until, left);
      std::erase_if(left, [this](size_t i) { return processes_[i].has_ended(); });
    }
    for (const size_t i : running(true)) take_end(i, program(i).is_awaited ? rest_ : Ending::ended);
  }

  void read_reports() {
    for (size_t i = 0; i < ends_.size(); ++i)
      ends_[i].sanitizer = sanitizer_line(read_text(file_of(folder_, "stderr", i)));
  }

  void check_output(Outcome& outcome) {
    StartRequest request{{"/bin/sh", "-c", plan_.pass},
                         inherited_environment(),
                         folder_ + "/pass.out",
                         folder_ + "/pass.err",
                         {}};
    request.environment.push_back(folder_variable());
    for (size_t i = 0; i < ends_.size(); ++i) {
      request.environment.push_back(fmt::format("EXPLORE_STDOUT_{}={}", i, file_of(folder_, "stdout", i)));
      request.environment.push_back(fmt::format("EXPLORE_STDERR_{}={}", i, file_of(folder_, "stderr", i)));
    }
    Process check;
    if (const int error = check.start(request); error != 0) {
      outcome.mistake = fmt::format("--pass cannot be started: {}", std::strerror(error));
      return;
    }
    deadline_ = Clock::now() + plan_.timeout;
    while (!check.has_ended() && Clock::now() < deadline_ && !is_stopped_) {
      std::array<pollfd, 2> fds{{{plan_.stop_fd, POLLIN, 0}, {check.ended_fd(), POLLIN, 0}}};
      const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
      poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000)));
      is_stopped_ = is_stopped_ || fds[0].revents != 0;
    }
    const int status = check.end();
    end_orphans(folder_variable());
    outcome.is_stopped = is_stopped_;
    if (!is_stopped_)
      outcome.verdict =
          judge(ends_, plan_.allowed, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }

  const RunPlan& plan_;
  const Trouble& trouble_;
  const std::string& folder_;
  size_t job_;
  NetworkFds network_;
  std::vector<Process> processes_;
  std::vector<ProgramEnd> ends_;
  Clock::time_point deadline_;
  Ending rest_ = Ending::ended;
  size_t order_ = 0;
  bool is_stopped_ = false;
};

}  // namespace

std::string file_of(const std::string& folder, std::string_view what, size_t program, std::string_view end) {
  return fmt::format("{}/{}-{}{}", folder, what, program, end);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> part;
  while (text.size() < kMostText_bytes && (file.read(part.data(), part.size()), file.gcount() > 0))
    text.append(part.data(), static_cast<size_t>(file.gcount()));
  return text;
}

Outcome run_test(const RunPlan& plan, const Trouble& trouble, const std::string& folder, size_t job,
                 const NetworkFds& network) {
  return Run(plan, trouble, folder, job, network).perform();
}

}  // namespace faultline::cli
