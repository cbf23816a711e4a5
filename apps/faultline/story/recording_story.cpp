// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/story/recording_story.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include <spdlog/fmt/fmt.h>

#include "stack/record/record.hpp"

namespace faultline::story {
namespace {

using record::ConnectionRow;
using record::ControlRow;
using record::FileHeader;
using record::Kind;
using record::Record;
using record::RingHeader;

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

std::string string_of(const std::array<char, 64>& text) {
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
    case Kind::posted:
      return EventKind::post;
    case Kind::waiting:
      return EventKind::wait;
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

/// The send queue of a QP, as far as its records show it.
struct SendQueue {
  struct Posted {
    uint16_t number = 0;   ///< record::Record::number
    uint32_t request = 0;  ///< its place in Story::requests
    size_t event = 0;      ///< its place in Story::events
  };
  std::deque<Posted> waiting;  ///< in the order of their numbers
  std::unordered_map<uint16_t, uint32_t> started;

  /// Removes the waiting ones up to a number. Returns that of the number, if it waits. Those before it are
  /// local operations, which have no packet, or were flushed.
  std::optional<Posted> take(uint16_t number) {
    forget_if_reset(number);
    return flush(number);
  }
  /// As take(), for a completion, which may be of one before the waiting ones.
  std::optional<Posted> flush(uint16_t number) {
    while (!waiting.empty() && static_cast<int16_t>(waiting.front().number - number) <= 0) {
      const Posted one = waiting.front();
      waiting.pop_front();
      if (one.number == number) return one;
    }
    return std::nullopt;
  }
  /// Work requests are posted and started in the order of their numbers, which begin anew after a reset.
  void forget_if_reset(uint16_t number) {
    if (!waiting.empty() && static_cast<int16_t>(number - waiting.front().number) < 0) waiting.clear();
  }
};

class Reader {
 public:
  Reader(std::span<const uint8_t> file, Story& story) : file_(file), story_(story) {}

  std::string read() {
    if (file_.size() < sizeof(FileHeader)) return "the file ends within its header";
    const auto header = load<FileHeader>(file_, 0);
    if (header.version != record::kVersion)
      return fmt::format(
          "a recording of version {}, and this program reads version {}: record anew, or use {}",
          header.version, record::kVersion,
          header.version < record::kVersion ? "an older faultline" : "a newer faultline");
    if (header.rings > record::kMostRings) return "its number of rings is impossible";
    if (!fits(file_, header.connections_offset_bytes, header.connection_rows, sizeof(ConnectionRow)) ||
        header.connection_rows == 0)
      return "its connections are outside the file";
    if (!fits(file_, header.controls_offset_bytes, header.control_rows, sizeof(ControlRow)))
      return "its control calls are outside the file";
    story_.origin = fmt::format("recording of {} of {} (process {})", string_of(header.device),
                                string_of(header.program), header.pid);
    read_connections(header);
    for (uint32_t i = 0; i < header.rings; ++i) {
      const RingHeader ring = header.ring[i];
      if (!std::has_single_bit(ring.records) || !fits(file_, ring.offset_bytes, ring.records, sizeof(Record)))
        return fmt::format("its ring {} is outside the file", i);
      read_ring(i, ring);
    }
    read_controls(header);
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

  void read_controls(const FileHeader& header) {
    if (header.control_rows == 0) return;
    const uint64_t kept = std::min(header.controls_written, header.control_rows);
    const uint64_t first = header.controls_written - kept;
    for (uint64_t number = first; number < header.controls_written; ++number) {
      const auto row = load<ControlRow>(
          file_, header.controls_offset_bytes + (number % header.control_rows) * sizeof(ControlRow));
      // A program that still runs may have overwritten the oldest meanwhile.
      const uint64_t now = load<FileHeader>(file_, 0).controls_written;
      if (now > header.control_rows && number < now - header.control_rows) continue;
      if (row.call != record::ControlCall::none && row.call < record::ControlCall::count_) add_control(row);
    }
    story_.lost_controls = first;
  }

  void add_control(const ControlRow& row) {
    Control control{.row = row, .time_ns = row.time_ns};
    Event event;
    event.time_ns = row.time_ns;
    event.kind = EventKind::control;
    event.code = static_cast<uint8_t>(row.call);
    event.argument = static_cast<uint32_t>(story_.controls.size());
    const auto connection = names_qp(row) ? connection_of_qp(row) : std::nullopt;
    if (connection) {
      control.connection = event.connection = *connection;
      story_.events.push_back(event);
    } else {
      of_device_.push_back(event);
    }
    story_.controls.push_back(control);
  }

  static bool names_qp(const ControlRow& row) {
    using record::ControlCall;
    return row.object != 0 && (row.call == ControlCall::create_qp || row.call == ControlCall::modify_qp ||
                               row.call == ControlCall::destroy_qp);
  }

  /// That of the QP's packets, if it has any.
  std::optional<uint16_t> connection_of_qp(const ControlRow& row) {
    const auto known = connections_.lower_bound({row.object, 0});
    if (known != connections_.end() && known->first.first == row.object) return known->second;
    Record record;
    record.qpn = row.object;
    const auto index = connection_of(record);
    if (index && !rows_.contains(row.object)) story_.connections[*index].service = service_of(row.qp_type);
    return index;
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
    if (record.kind == Kind::posted) return add_post(event, record);
    if (record.kind == Kind::waiting && record.argument < record.number)
      event.flags = static_cast<uint16_t>(event.flags | kCutWindow);
    if (record.kind == Kind::completion && !event.is(kResponse)) complete_request(record);
    if (record.request >= record::kStartsRequest) start_request(event, record);
    story_.events.push_back(event);
  }

  /// A work request that is not started yet, or that starts with its packet.
  SendQueue::Posted add_request(Event event, uint8_t operation, uint32_t length_bytes, uint16_t number) {
    const auto place = static_cast<uint32_t>(story_.requests.size());
    story_.requests.push_back({.connection = event.connection,
                               .operation = operation,
                               .length_bytes = length_bytes,
                               .posted_ns = event.time_ns});
    event.kind = EventKind::post;
    event.code = operation;
    event.length_bytes = length_bytes;
    event.argument = place;
    event.flags = 0;
    event.syndrome = 0;
    story_.events.push_back(event);
    return {.number = number, .request = place, .event = story_.events.size() - 1};
  }

  void add_post(const Event& event, const Record& record) {
    SendQueue& queue = queues_[record.qpn];
    queue.forget_if_reset(record.number);
    queue.waiting.push_back(add_request(event, record.code, record.argument, record.number));
  }

  /// The work request that the packet starts.
  void start_request(Event& packet, const Record& record) {
    SendQueue& queue = queues_[record.qpn];
    auto posted = queue.take(record.number);
    if (!posted)
      posted = add_request(packet, static_cast<uint8_t>(record.request - record::kStartsRequest),
                           record.argument, record.number);
    story_.events[posted->event].psn = packet.psn;
    story_.requests[posted->request].first_packet_ns = packet.time_ns;
    queue.started[record.number] = posted->request;
    if (packet.info().operation != wire::Operation::read_request) packet.argument = 0;
  }

  void complete_request(const Record& record) {
    SendQueue& queue = queues_[record.qpn];
    std::optional<uint32_t> request;
    if (const auto started = queue.started.find(record.number); started != queue.started.end()) {
      request = started->second;
      queue.started.erase(started);
    } else if (const auto posted = queue.flush(record.number)) {
      request = posted->request;
    }
    if (!request) return;
    story_.requests[*request].completed_ns = record.time_ns;
    story_.requests[*request].status = record.code;
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
    // What happens to the device is shown with each connection, if that makes not too many events.
    constexpr size_t kMostShown = 64;
    constexpr size_t kMostCopies = 65536;
    const size_t most = std::max<size_t>(1, kMostCopies / std::max<size_t>(1, of_device_.size()));
    const size_t shown = std::min({story_.connections.size(), kMostShown, most});
    for (Event event : of_device_)
      for (event.connection = 0; event.connection < shown; ++event.connection) story_.events.push_back(event);
    std::ranges::stable_sort(story_.events, {}, &Event::time_ns);
    if (story_.events.empty()) return;
    const uint64_t start_ns = story_.events.front().time_ns;
    story_.start_realtime_ns = header.realtime_ns + start_ns - header.monotonic_ns;
    for (Event& event : story_.events) event.time_ns -= start_ns;
    for (Control& control : story_.controls) control.time_ns -= start_ns;
    for (WorkRequest& request : story_.requests)
      for (uint64_t* const time_ns : {&request.posted_ns, &request.first_packet_ns, &request.completed_ns})
        if (*time_ns != WorkRequest::kNever) *time_ns -= start_ns;
    if (story_.lost_controls != 0)
      story_.notes.push_back(fmt::format("{} older control calls overwritten", story_.lost_controls));
  }

  std::span<const uint8_t> file_;
  Story& story_;
  std::map<uint32_t, ConnectionRow> rows_;
  std::vector<Event> of_device_;
  std::unordered_map<uint32_t, SendQueue> queues_;  ///< by QPN
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
