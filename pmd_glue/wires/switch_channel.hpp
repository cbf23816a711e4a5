// SPDX-License-Identifier: BSD-3-Clause
// A process's connection to a wire's switch: numbered requests and their answers. No call waits longer than
// its deadline. Owner: the thread that holds the seat's mutex.
#pragma once

#include <cstdint>
#include <vector>

#include <sys/types.h>

#include "pmd_glue/wires/switch_place.hpp"
#include "pmd_glue/wires/switch_protocol.hpp"
#include "stack/base/unique_fd.hpp"

namespace faultline::glue {

class SwitchChannel {
 public:
  enum class Received : uint8_t {
    answer,
    nothing,  ///< by the deadline
    ended,    ///< the switch has gone
    broken    ///< what came is no answer
  };

  SwitchChannel() = default;
  /// Takes a non-blocking connection.
  explicit SwitchChannel(UniqueFd connection);
  ~SwitchChannel() { close(); }
  SwitchChannel(SwitchChannel&& other) noexcept = default;
  SwitchChannel& operator=(SwitchChannel&& other) noexcept;

  [[nodiscard]] int descriptor() const { return connection_.get(); }
  /// False where the program has closed the descriptor: its number may be a file of the program's by now.
  [[nodiscard]] bool is_ours() const;
  /// Leaves alone a descriptor that is not ours.
  void close();

  /// Sends the request with the next number, which it returns; 0 with errno: ETIMEDOUT where the switch takes
  /// nothing.
  [[nodiscard]] uint64_t send(SwitchRequest request, SteadyTime deadline);
  /// The answer to `number`, with the descriptors that came with it. Skips answers to other requests; one of
  /// no request (number 0) or of another version is taken for the one that is waited for.
  [[nodiscard]] Received receive(uint64_t number, SteadyTime deadline, SwitchAnswer& answer,
                                 std::vector<UniqueFd>& descriptors);
  /// Takes what has come without an asker. False where the switch has gone.
  [[nodiscard]] bool drain();
  /// The number of the latest answer, to any request.
  [[nodiscard]] uint64_t latest_answer() const { return latest_answer_; }

 private:
  [[nodiscard]] Received receive_next(SwitchAnswer& answer, std::vector<UniqueFd>& descriptors);

  UniqueFd connection_;
  ino_t inode_ = 0;
  uint64_t latest_request_ = 0;
  uint64_t latest_answer_ = 0;
};

}  // namespace faultline::glue
