// SPDX-License-Identifier: BSD-3-Clause
// A UDP socket on the RoCE port of one of the host's addresses. It takes and returns frames: the headers
// below the BTH are removed before a packet is sent, and written before one that was received. Packets of one
// length to one peer pass the kernel as a train (UDP_SEGMENT and UDP_GRO, udp(7)). Owner: the thread that
// holds the turn of the first core; transmit() may have another caller, one at a time.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <sys/socket.h>

#include "pmd_glue/link/socket_address.hpp"
#include "pmd_glue/ports/udp/path_errors.hpp"
#include "stack/base/unique_fd.hpp"
#include "stack/wire/link/datagram.hpp"
#include "stack/wire/packet/headers.hpp"
#include "stack/wire/packet/identification.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace faultline::glue {

class UdpSocket {
 public:
  /// Binds a socket to an address that interface `scope` has. Returns nullptr with the reason in `error`.
  [[nodiscard]] static std::unique_ptr<UdpSocket> open(const wire::Gid& own, uint32_t scope,
                                                       rte_mempool* pool, std::string& error);
  /// Makes interface `interface` a member of a group, and binds a socket to the group: it receives what is
  /// sent to the group there, and sends nothing. Returns nullptr with the errno in `error`.
  [[nodiscard]] static std::unique_ptr<UdpSocket> join(const wire::Gid& group, uint32_t interface,
                                                       rte_mempool* pool, int& error);
  ~UdpSocket();
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  /// The address or the group.
  [[nodiscard]] const wire::Gid& own() const { return own_; }
  /// Readable while datagrams wait in the kernel.
  [[nodiscard]] int descriptor() const { return fd_.get(); }
  /// Bytes of the kernel's buffer for received datagrams, with what it counts for each besides its data.
  [[nodiscard]] uint32_t receive_buffer_bytes() const;

  /// Receives datagrams as frames to `mac` from port `port` of DPDK; returns their number.
  [[nodiscard]] size_t receive(const wire::MacAddress& mac, uint16_t port, std::span<rte_mbuf*> frames);
  /// True if the last receive() had no room for all datagrams that it has taken from the kernel.
  [[nodiscard]] bool holds_datagrams() const { return at_ < arrived_; }
  /// Sends a prefix of `frames`, whose source is own(), and frees it; returns its length. Datagrams that the
  /// kernel refuses are dropped and count as sent.
  [[nodiscard]] size_t transmit(std::span<rte_mbuf*> frames);

  // Any thread.

  /// Datagrams that the full receive buffer or a too small frame could not hold.
  [[nodiscard]] uint64_t missed() const { return missed_.load(std::memory_order_relaxed); }
  /// Receive calls that found the pool short of frames.
  [[nodiscard]] uint64_t no_buffer() const { return no_buffer_.load(std::memory_order_relaxed); }
  /// Datagrams that the kernel refused to send, except too long ones.
  [[nodiscard]] uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  [[nodiscard]] const PathErrors& path_errors() const { return path_errors_; }

 private:
  /// Most messages of a call.
  static constexpr size_t kIncoming = 16;
  static constexpr size_t kOutgoing = 64;
  static constexpr size_t kControlBytes = 96;
  using Control = std::array<uint8_t, kControlBytes>;

  /// Arguments of recvmmsg(2). A datagram lands in a frame. What a train has beyond that frame lands in
  /// `rest`.
  struct Incoming {
    std::array<mmsghdr, kIncoming> messages{};
    std::array<std::array<iovec, 2>, kIncoming> parts{};
    std::array<SocketAddress, kIncoming> addresses{};
    alignas(cmsghdr) std::array<Control, kIncoming> controls{};
    std::array<rte_mbuf*, kIncoming> frames{};  ///< nullptr: none yet
    std::array<std::array<uint8_t, wire::kMaxDatagramBytes>, kIncoming> rest;
  };
  /// Arguments of sendmmsg(2): a message has the parts of one or several frames.
  struct Outgoing {
    std::array<mmsghdr, kOutgoing> messages{};
    std::array<iovec, kOutgoing> parts{};
    std::array<SocketAddress, kOutgoing> addresses{};
    alignas(cmsghdr) std::array<Control, kOutgoing> controls{};
  };
  /// What a received message says of its datagrams.
  struct Arrival {
    wire::IncomingDatagram datagram;
    uint32_t bytes = 0;
    uint32_t segment_bytes = 0;  ///< of all but the last
    uint32_t done_bytes = 0;
  };

  UdpSocket(UniqueFd fd, const wire::Gid& own, uint32_t scope, rte_mempool* pool);
  [[nodiscard]] bool ask_kernel();
  [[nodiscard]] size_t prepare_frames(size_t wanted);
  [[nodiscard]] Arrival arrival_of(size_t index);
  void note_control(const cmsghdr& control, Arrival& arrival);
  [[nodiscard]] rte_mbuf* next_frame(uint16_t port);
  [[nodiscard]] rte_mbuf* copy_segment(uint32_t begin, uint32_t length_bytes);
  struct Planned {
    size_t messages = 0;
    size_t frames = 0;
  };
  struct Sent {
    size_t frames = 0;
    int error = 0;           ///< of the first message, if none was sent
    bool was_train = false;  ///< the first message
    [[nodiscard]] bool may_pass_later() const {
      return error == EAGAIN || error == ENOBUFS || error == EINTR;
    }
  };
  [[nodiscard]] Sent send(std::span<rte_mbuf*> frames);
  [[nodiscard]] Planned plan(std::span<rte_mbuf*> frames);
  void begin_message(size_t index, size_t part, const wire::OutgoingDatagram& first);
  void add_control(msghdr& header, int level, int type, const void* value, size_t bytes);
  void number_train(const msghdr& header);

  const UniqueFd fd_;
  const wire::Gid own_;
  const uint32_t scope_;
  const bool is_ipv6_;
  rte_mempool* const pool_;
  PathErrors path_errors_;

  const std::unique_ptr<Incoming> in_;
  /// Messages to ask for: twice as many as the last call returned. If fewer wait, the kernel looks at the
  /// empty queue once more.
  size_t wanted_ = 1;
  size_t arrived_ = 0;     ///< messages of the last call
  size_t at_ = 0;          ///< the first of them whose datagrams are not all received
  Arrival current_;        ///< of message at_
  uint32_t overflow_ = 0;  ///< the kernel's last count (SO_RXQ_OVFL)

  const std::unique_ptr<Outgoing> out_;
  bool sends_trains_ = true;
  wire::IdentificationIcrc identification_;

  std::atomic<uint64_t> missed_{0};
  std::atomic<uint64_t> no_buffer_{0};
  std::atomic<uint64_t> refused_{0};
};

}  // namespace faultline::glue
