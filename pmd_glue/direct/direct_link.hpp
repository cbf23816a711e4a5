// SPDX-License-Identifier: BSD-3-Clause
// A direct link between two processes of a wire, in memory that the switch has created and given to both.
// Unicast RoCEv2 frames take it, except management datagrams. A peer that breaks the rules loses the link and
// nothing else. Owner: the thread that holds the turn of the first core.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "pmd_glue/direct/kept_frames.hpp"
#include "pmd_glue/direct/shared_ring.hpp"
#include "pmd_glue/link/address_table.hpp"
#include "pmd_glue/wires/wire_attachment.hpp"
#include "stack/base/time.hpp"

namespace faultline::glue {

class DirectLink {
 public:
  /// The first frames of a link wait for the marker, which follows earlier frames over the switch, at most so
  /// long.
  static constexpr TimeNs kMarkerNs = 20'000'000;
  /// A peer that has taken no frame for so long may be stopped: the link keeps further frames, so that those
  /// of other peers go on. Shorter than the time after which the engine drops frames of a port (tx_path.cpp).
  static constexpr TimeNs kStuckNs = 20'000'000;
  /// A peer that has taken no frame for so long loses what is kept, and all further frames.
  static constexpr TimeNs kKeptNs = 2'000'000'000;

  /// Returns nullptr if the memory cannot be mapped. `own_seat` is this process's. `budget` outlives the
  /// link.
  [[nodiscard]] static std::unique_ptr<DirectLink> begin(WireAttachment::LinkNews news, uint32_t own_seat,
                                                         KeptBudget& budget);

  [[nodiscard]] const SwitchGrant& peer() const { return peer_; }
  [[nodiscard]] SharedRing& ring() { return *ring_; }

  // --- transmit ---

  [[nodiscard]] bool takes_frames() { return !ended_ && violation_ == nullptr && ring_->takes_frames(); }
  /// True if frames may follow: the marker has been sent.
  [[nodiscard]] bool is_marked() const { return marked_; }
  void note_marker_sent() { marked_ = true; }
  /// Transmits or keeps a prefix of `frames`; returns its length. Adds the frames that a stuck peer loses to
  /// `dropped`.
  [[nodiscard]] size_t transmit(std::span<rte_mbuf*> frames, uint64_t& dropped);
  [[nodiscard]] bool keeps_frames() const { return !kept_.empty(); }
  /// Transmits kept frames, as far as the peer takes them. Returns true if none is left.
  [[nodiscard]] bool flush(uint64_t& dropped);

  // --- receive ---

  /// The marker has come: all frames that the peer sent over the switch before have been received.
  void open() { open_ = true; }
  /// True if frames wait for the marker.
  [[nodiscard]] bool waits_for_marker() const { return !open_ && ring_->has_frames(); }
  /// Receives frames of this peer; the first other frame ends the link.
  [[nodiscard]] size_t receive(rte_mempool* pool, uint16_t port, std::span<rte_mbuf*> frames);
  /// What the peer did wrong; nullptr: nothing.
  [[nodiscard]] const char* violation() const {
    return violation_ != nullptr ? violation_ : ring_->violation();
  }

  // --- the end ---

  /// The peer has gone: frames that wait are still received; none is sent.
  void end() { ended_ = true; }
  [[nodiscard]] bool is_ended() const { return ended_; }
  [[nodiscard]] bool is_drained() const { return ended_ && (violation() != nullptr || !ring_->has_frames()); }
  /// Closes a link that carries nothing. Returns true once both ends have agreed and it is empty.
  [[nodiscard]] bool close();
  /// Returns since when no frame has moved, as far as calls of this function have seen it.
  [[nodiscard]] TimeNs idle_since(TimeNs now);

 private:
  DirectLink(const SwitchGrant& peer, std::unique_ptr<SharedRing> ring, KeptBudget& budget);
  [[nodiscard]] size_t keep(std::span<rte_mbuf*> frames, TimeNs now, uint64_t& dropped);
  [[nodiscard]] bool is_of_peer(const rte_mbuf* frame) const;

  const SwitchGrant peer_;
  const AddressTable peer_addresses_;
  const uint64_t peer_mac_;  ///< wire::mac_word()
  const std::unique_ptr<SharedRing> ring_;
  KeptFrames kept_;
  const char* violation_ = nullptr;
  bool marked_ = false;
  bool open_ = false;
  bool ended_ = false;
  TimeNs waiting_since_ = 0;  ///< frames wait for the marker; 0: none
  TimeNs full_since_ = 0;     ///< the peer takes no frames; 0: it does
  uint64_t moved_seen_ = 0;   ///< by idle_since()
  TimeNs idle_since_ = 0;
};

}  // namespace faultline::glue
