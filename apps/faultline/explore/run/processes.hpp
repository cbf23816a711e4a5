// SPDX-License-Identifier: BSD-3-Clause
// Processes that explore starts: each leads a process group, and nothing of a group survives its end.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "stack/base/unique_fd.hpp"

namespace faultline::cli {

/// The network of the programs of one run: -1 leaves them in that of this process.
struct NetworkFds {
  int user = -1;
  int network = -1;
};

struct StartRequest {
  std::vector<std::string> words;
  std::vector<std::string> environment;  ///< whole: "NAME=VALUE"
  std::string output;                    ///< files that are created
  std::string errors;
  NetworkFds network;
};

/// A running program: its leader is not waited for before end(), so its number stays its own.
class Process {
 public:
  Process() = default;
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process() { end(); }

  /// Returns 0 or an errno. The program starts with stdin from /dev/null and with no signal blocked. One that
  /// cannot be executed ends with status 127, with a line in `errors`.
  int start(const StartRequest& request);
  [[nodiscard]] bool is_started() const { return id_ > 0; }
  [[nodiscard]] pid_t id() const { return id_; }
  /// A descriptor that is readable once the leader has ended; -1 before start.
  [[nodiscard]] int ended_fd() const { return ended_.get(); }
  [[nodiscard]] bool has_ended() const;
  /// Sends a signal to the group.
  void send(int signal) const;
  /// Kills what is left of the group and returns the leader's status as wait(2) has it.
  int end();

 private:
  pid_t id_ = 0;
  int status_ = 0;
  UniqueFd ended_;
};

/// Makes this process the parent of its descendants that lose theirs, as daemons do.
void adopt_orphans();

/// Kills the adopted processes whose environment has this text: what a run left behind, such as a wire's
/// switch.
void end_orphans(const std::string& variable);

}  // namespace faultline::cli
