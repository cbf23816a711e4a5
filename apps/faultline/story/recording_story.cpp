// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/recording_story.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>

#include <spdlog/fmt/fmt.h>

#include "stack/record/record.hpp"

namespace faultline::story {
namespace {

using record::ConnectionRow;
using record::FileHeader;
using record::Kind;
using record::Record;
using record::RingHeader;

constexpr size_t kMostConnections = 65535;

template <typename Value>
Value load(std::span<const uint8_t> file, uint64_t offset_bytes) {
  Value value;
  std::memcpy(&value, file.data() + offset_bytes, sizeof(value));
  return value;
}

/// True if `count` elements of a size are in the file from the offset on.
bool fits(std::span<const uint8_t> file, uint64_t offset_bytes, uint64_t count, uint64_t element_bytes) {
  return offset_bytes <= file.size() && count <= (file.size() - offset_bytes) / element_bytes;
}

uint64_t written_of(std::span<const uint8_t> file, uint32_t ring) {
  return load<RingHeader>(file, offsetof(FileHeader, ring) + ring * sizeof(RingHeader)).written;
}

std::string name_of(const std::array<char, 64>& text) {
  return {text.begin(), std::ranges::find(text, '\0')};
}

struct Flagged {
  record::Flag recorded;
  EventFlag shown;
};
constexpr std::array kFlags{
    Flagged{record::kAckRequest, kAckRequest},
    Flagged{record::kMarked, kMarked},
    Flagged{record::kPageFault, kPageFault},
    Flagged{record::kPageReady, kPageReady},
    Flagged{record::kHeld, kHeld},
    Flagged{record::kParked, kParked},
    Flagged{record::kSolicited, kSolicited},
};

std::optional<EventKind> kind_of(Kind kind) {
  switch (kind) {
    case Kind::sent:
    case Kind::received:
      return EventKind::packet;
    case Kind::dropped:
      return EventKind::drop;
    case Kind::completion:
      return EventKind::completion;
    case Kind::fault:
      return EventKind::fault;
    case Kind::fault_end:
      return EventKind::fault_end;
    case Kind::timer:
      return EventKind::timer;
    case Kind::rate:
      return EventKind::congestion;
    case Kind::invalidation:
      return EventKind::invalidation;
    case Kind::none:
      break;
  }
  return std::nullopt;
}

wire::Service service_of(uint8_t qp_type) {
  switch (qp_type) {
    case 3:
      return wire::Service::uc;
    case 4:
      return wire::Service::ud;
    case 9:
    case 10:
      return wire::Service::xrc;
    default:
      return wire::Service::rc;
  }
}

class Reader {
 public:
  Reader(std::span<const uint8_t> file, Story& story) : file_(file), story_(story) {}

  std::string read() {
    if (file_.size() < sizeof(FileHeader)) return "the file ends within its header";
    const auto header = load<FileHeader>(file_, 0);
    if (header.version != record::kVersion)
      return fmt::format("a recording of version {}; this program reads {}", header.version,
                         record::kVersion);
    if (header.rings > record::kMostRings) return "its number of rings is impossible";
    if (!fits(file_, header.connections_offset_bytes, header.connection_rows, sizeof(ConnectionRow)) ||
        header.connection_rows == 0)
      return "its connections are outside the file";
    story_.origin = fmt::format("recording of {} of {} (process {})", name_of(header.device),
                                name_of(header.program), header.pid);
    read_connections(header);
    for (uint32_t i = 0; i < header.rings; ++i) {
      const RingHeader ring = header.ring[i];
      if (!std::has_single_bit(ring.records) || !fits(file_, ring.offset_bytes, ring.records, sizeof(Record)))
        return fmt::format("its ring {} is outside the file", i);
      read_ring(i, ring);
    }
    finish(header);
    return "";
  }

 private:
  void read_connections(const FileHeader& header) {
    const uint64_t kept = std::min<uint64_t>(header.connections_written, header.connection_rows);
    for (uint64_t i = 0; i < kept; ++i) {
      const uint64_t slot = (header.connections_written - kept + i) % header.connection_rows;
      const auto row =
          load<ConnectionRow>(file_, header.connections_offset_bytes + slot * sizeof(ConnectionRow));
      rows_[row.qpn] = row;  // a later row of a QP knows more
    }
  }

  void read_ring(uint32_t index, const RingHeader& ring) {
    const uint64_t kept = std::min(ring.written, ring.records);
    const uint64_t first = ring.written - kept;
    std::vector<Record> records(kept);
    for (uint64_t number = first; number < ring.written; ++number)
      records[number - first] =
          load<Record>(file_, ring.offset_bytes + (number & (ring.records - 1)) * sizeof(Record));
    // A program that still runs has overwritten the oldest meanwhile: their copies may be torn.
    const uint64_t now = written_of(file_, index);
    const uint64_t lost = now > ring.records ? now - ring.records : 0;
    const uint64_t torn = std::min(kept, std::max(lost, first) - first);
    for (uint64_t i = torn; i < kept; ++i) add(records[i]);
    story_.lost_events += std::max(lost, first);
  }

  void add(const Record& record) {
    const auto kind = kind_of(record.kind);
    if (!kind) return;
    Event event;
    event.time_ns = record.time_ns;
    event.psn = static_cast<int32_t>(record.psn & wire::Psn::kMask);
    event.argument = record.argument;
    event.length_bytes = record.length_bytes;
    event.kind = *kind;
    event.code = record.code;
    event.syndrome = record.syndrome;
    event.flags = flags_of(record);
    if (event.kind == EventKind::invalidation) return of_device_.push_back(event);
    const auto index = connection_of(record);
    if (!index) return;
    event.connection = *index;
    if (record.request >= record::kStartsRequest) add_request(event, record);
    story_.events.push_back(event);
  }

  /// The work request that the packet starts.
  void add_request(Event& packet, const Record& record) {
    Event event = packet;
    event.kind = EventKind::post;
    event.code = static_cast<uint8_t>(record.request - record::kStartsRequest);
    event.length_bytes = record.argument;
    event.argument = 0;
    event.flags = 0;
    story_.events.push_back(event);
    if (packet.info().operation != wire::Operation::read_request) packet.argument = 0;
  }

  static uint16_t flags_of(const Record& record) {
    unsigned flags = 0;
    for (const Flagged& one : kFlags)
      if ((record.flags & one.recorded) != 0) flags |= one.shown;
    if (record.kind == Kind::sent || record.kind == Kind::received) {
      const wire::OpcodeInfo& info = wire::opcode_info(record.code);
      if (!info.request && info.service != wire::Service::cnp) flags |= kResponse;
      if (record.kind == Kind::received) flags |= kOfSecondEnd | kReceived;
    } else if ((record.flags & record::kOfPeer) != 0) {
      flags |= kResponse;
    }
    return static_cast<uint16_t>(flags);
  }

  /// Datagrams have a connection for each peer.
  std::optional<uint16_t> connection_of(const Record& record) {
    const auto row = rows_.find(record.qpn);
    const bool packet = record.kind == Kind::sent || record.kind == Kind::received;
    const bool datagram = packet && wire::opcode_info(record.code).service == wire::Service::ud;
    const std::pair key{record.qpn, datagram ? record.argument : 0};
    if (key == last_key_) return last_;
    const auto [place, is_new] = connections_.try_emplace(key, 0);
    if (is_new) {
      if (story_.connections.size() == kMostConnections) return std::nullopt;
      place->second = static_cast<uint16_t>(story_.connections.size());
      Connection connection;
      connection.ends[0].qpn = record.qpn;
      connection.ends[1].qpn = datagram ? record.argument : 0;
      connection.service = datagram ? wire::Service::ud : wire::Service::rc;
      if (row != rows_.end()) {
        connection.ends[0].address.bytes = row->second.gid;
        connection.ends[1].address.bytes = row->second.peer_gid;
        if (!datagram) connection.ends[1].qpn = row->second.peer_qpn;
        connection.service = service_of(row->second.qp_type);
        connection.mtu_bytes = row->second.mtu_bytes;
      }
      story_.connections.push_back(connection);
    }
    last_key_ = key;
    last_ = place->second;
    return last_;
  }

  /// Rings are merged by time; the order within one stays. Times become relative.
  void finish(const FileHeader& header) {
    // What happens to the device's memory is shown with each connection, if they are not too many.
    constexpr size_t kMostShown = 64;
    const size_t shown = std::min(story_.connections.size(), kMostShown);
    for (Event event : of_device_)
      for (event.connection = 0; event.connection < shown; ++event.connection) story_.events.push_back(event);
    std::ranges::stable_sort(story_.events, {}, &Event::time_ns);
    if (story_.events.empty()) return;
    const uint64_t start_ns = story_.events.front().time_ns;
    story_.start_realtime_ns = header.realtime_ns + start_ns - header.monotonic_ns;
    for (Event& event : story_.events) event.time_ns -= start_ns;
  }

  std::span<const uint8_t> file_;
  Story& story_;
  std::map<uint32_t, ConnectionRow> rows_;
  std::vector<Event> of_device_;
  std::map<std::pair<uint32_t, uint32_t>, uint16_t> connections_;
  std::pair<uint32_t, uint32_t> last_key_{~0U, ~0U};
  uint16_t last_ = 0;
};

}  // namespace

bool is_recording(std::span<const uint8_t> file) {
  return file.size() >= record::kMagic.size() &&
         std::memcmp(file.data(), record::kMagic.data(), record::kMagic.size()) == 0;
}

std::string read_recording_story(std::span<const uint8_t> file, Story& story) {
  return Reader(file, story).read();
}

}  // namespace faultline::story
