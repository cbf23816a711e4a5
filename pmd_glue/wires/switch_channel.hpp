// SPDX-License-Identifier: BSD-3-Clause
// A process's connection to a wire's switch: numbered requests and their answers. No call waits past its
// deadline. Owner: the thread that holds the seat's mutex.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
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
    nothing,  ///< until the deadline
    ended,    ///< the switch closed the connection
    broken    ///< the message is malformed
  };

  SwitchChannel() = default;
  /// Takes ownership of a non-blocking connection.
  explicit SwitchChannel(UniqueFd connection);
  ~SwitchChannel() { close(); }
  SwitchChannel(SwitchChannel&& other) noexcept = default;
  SwitchChannel& operator=(SwitchChannel&& other) noexcept;

  [[nodiscard]] int descriptor() const { return connection_.get(); }
  /// Returns false if the program has closed the descriptor: its number may belong to one of the program's
  /// files.
  [[nodiscard]] bool is_ours() const;
  /// Closes the connection, unless the descriptor is no longer the channel's own.
  void close();
  /// Closes `previous` and gives its number to this connection, so that a program which compares its
  /// descriptors before and after a step finds no other one. Neither changes if the program has closed one of
  /// them.
  void take_number_of(SwitchChannel& previous);

  /// A message on a direct link, with its descriptors.
  struct LinkNews {
    SwitchAnswer message;
    std::vector<UniqueFd> descriptors;
  };

  /// Sends the request with the next number and returns the number. Returns 0 with errno on failure;
  /// ETIMEDOUT if the socket's buffer stays full.
  /// `descriptors` go with it.
  [[nodiscard]] uint64_t send(SwitchRequest request, SteadyTime deadline,
                              std::span<const int> descriptors = {});
  /// Receives the answer to `number` and its descriptors. Skips answers to other requests. An unsolicited
  /// answer (number 0), or one of another version, counts as the awaited answer.
  [[nodiscard]] Received receive(uint64_t number, SteadyTime deadline, SwitchAnswer& answer,
                                 std::vector<UniqueFd>& descriptors);
  /// Discards pending answers. Returns false if the switch closed the connection or sent a malformed message.
  [[nodiscard]] bool drain();
  /// Takes the messages on links that came between answers. At most kMostNews wait: further ones are dropped,
  /// and frames take the way over the switch.
  [[nodiscard]] std::vector<LinkNews> take_link_news() { return std::exchange(link_news_, {}); }
  static constexpr size_t kMostNews = 4096;
  /// Returns the uplink's state if the switch has sent one since the last call.
  [[nodiscard]] std::optional<bool> take_uplink_state() { return std::exchange(uplink_state_, std::nullopt); }
  /// Number of the latest answer, to any request.
  [[nodiscard]] uint64_t latest_answer() const { return latest_answer_; }

 private:
  [[nodiscard]] Received receive_next(SwitchAnswer& answer, std::vector<UniqueFd>& descriptors);
  [[nodiscard]] Received receive_one(SwitchAnswer& answer, std::vector<UniqueFd>& descriptors);

  UniqueFd connection_;
  ino_t inode_ = 0;
  std::vector<LinkNews> link_news_;
  std::optional<bool> uplink_state_;
  uint64_t latest_request_ = 0;
  uint64_t latest_answer_ = 0;
};

}  // namespace faultline::glue
