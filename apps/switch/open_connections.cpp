// SPDX-License-Identifier: BSD-3-Clause
#include "apps/switch/open_connections.hpp"

namespace faultline::switching {

using wire::CmAttribute;

void OpenConnections::note(std::span<const uint8_t> frame, const wire::CmMad& message, PortIndex from) {
  const auto source = wire::peek_source_gid(frame);
  const auto destination = wire::peek_destination_gid(frame);
  if (!source || !destination) return;
  switch (message.attribute()) {
    case CmAttribute::req: {
      const wire::CmReq req = wire::read_req(message);
      return add({source->bytes, req.local_id}, from, req.qpn, frame);
    }
    case CmAttribute::rep: {
      const wire::CmRep rep = wire::read_rep(message);
      const Key own{source->bytes, rep.local_id}, peers{destination->bytes, rep.remote_id};
      End* const peer = find(peers);
      // Only the destination of the REQ may answer it.
      if (peer == nullptr || wire::peek_destination_gid(peer->frame) != source) return;
      // An XRC target's QPN is its EECN.
      add(own, from, rep.qpn != 0 ? rep.qpn : rep.eecn, frame);
      if (End* const end = find(own)) {
        end->peer = peers;
        peer->peer = own;
      }
      return;
    }
    case CmAttribute::rej: {
      const wire::CmRej rej = wire::read_rej(message);
      forget({source->bytes, rej.local_id});
      const Key peers{destination->bytes, rej.remote_id};
      const End* const peer = find(peers);
      if (peer != nullptr && wire::peek_destination_gid(peer->frame) == source) forget(peers);
      return;
    }
    case CmAttribute::dreq:
      return forget({source->bytes, wire::read_dreq(message).local_id});
    case CmAttribute::drep:
      return forget({source->bytes, wire::read_drep(message).local_id});
    default:
      return;
  }
}

void OpenConnections::end(PortIndex port, const std::function<void(std::span<const uint8_t> frame)>& send) {
  std::vector<Key> keys;
  for (const auto& [key, end] : ends_)
    if (end.port == port) keys.push_back(key);
  for (const Key& key : keys) {
    End* const own = find(key);
    if (own == nullptr) continue;  // the peer's end was removed with an earlier key
    const End* const peer = own->peer ? find(*own->peer) : nullptr;
    std::vector<uint8_t> frame = std::move(own->frame);
    size_t bytes = 0;
    if (peer != nullptr && peer->port != port) {
      wire::MadBytes mad;
      wire::write(
          mad, uint64_t{key.second} << 32 | own->peer->second,
          wire::CmDreq{.local_id = key.second, .remote_id = own->peer->second, .remote_qpn = peer->qpn});
      bytes = wire::replace_cm_message(frame, mad);
    }
    // Before the DREQ is sent: note() sees it as any other message.
    forget(key);
    if (bytes != 0) send(std::span(frame).first(bytes));
  }
}

void OpenConnections::add(const Key& key, PortIndex port, uint32_t qpn, std::span<const uint8_t> frame) {
  // A retransmitted message adds nothing.
  if (ends_.contains(key) || of_port_[port] >= kMostOfAPort) return;
  ends_.emplace(key, End{port, qpn, std::nullopt, {frame.begin(), frame.end()}});
  ++of_port_[port];
}

OpenConnections::End* OpenConnections::find(const Key& key) {
  const auto found = ends_.find(key);
  return found == ends_.end() ? nullptr : &found->second;
}

void OpenConnections::forget(const Key& key) {
  const End* const end = find(key);
  if (end == nullptr) return;
  const std::optional<Key> peer = end->peer;
  forget_one(key);
  if (!peer) return;
  if (const End* const other = find(*peer); other != nullptr && other->peer == key) forget_one(*peer);
}

void OpenConnections::forget_one(const Key& key) {
  const auto found = ends_.find(key);
  --of_port_[found->second.port];
  ends_.erase(found);
}

}  // namespace faultline::switching
