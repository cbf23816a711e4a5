// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/verbs/memory_backend.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stack/base/clock.hpp"
#include "stack/status/failure_ring.hpp"
#include "stack/transport/qp/failure_record.hpp"
#include "stack/trouble/director.hpp"
#include "stack/verbs/objects/backend.hpp"
#include "stack/wire/link/link.hpp"

namespace faultline::verbs {

namespace test {

namespace {

using Bytes = std::vector<uint8_t>;

/// Frames in flight to one device.
class Inbox {
 public:
  void push(Bytes frame) {
    const std::lock_guard lock(mutex_);
    frames_.push_back(std::move(frame));
  }
  std::deque<Bytes> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(frames_, {});
  }

 private:
  std::mutex mutex_;
  std::deque<Bytes> frames_;
};

using Inboxes = std::map<std::string, std::shared_ptr<Inbox>>;
Inboxes& inboxes() {
  static Inboxes boxes{{"mem0", std::make_shared<Inbox>()}, {"mem1", std::make_shared<Inbox>()}};
  return boxes;
}

std::mutex& reasons_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::vector<std::string>& reasons() {
  static std::vector<std::string> lines;
  return lines;
}

/// What the devices record of control calls.
struct RecordedCalls {
  std::vector<record::ControlRow> rows = std::vector<record::ControlRow>(record::kControlRows);
  uint64_t written = 0;
  uint64_t taken = 0;  ///< of the test's thread
  record::ControlWriter writer{rows.data(), &written};
};
RecordedCalls& recorded_calls() {
  static RecordedCalls calls;
  return calls;
}

class MemoryPort final : public transport::Port {
 public:
  MemoryPort(std::shared_ptr<Inbox> own, std::shared_ptr<Inbox> peer)
      : own_(std::move(own)), peer_(std::move(peer)) {}

  size_t allocate(std::span<transport::TxFrame> out) override {
    for (transport::TxFrame& frame : out) {
      auto* const buffer = new Bytes(wire::kMaxFrameBytes);
      frame = {buffer->data(), wire::kMaxFrameBytes, 0, false, buffer};
    }
    return out.size();
  }
  size_t transmit(std::span<transport::TxFrame> frames) override {
    for (transport::TxFrame& frame : frames) {
      const std::unique_ptr<Bytes> buffer(static_cast<Bytes*>(frame.handle));
      buffer->resize(frame.length_bytes);
      const bool to_group = (buffer->front() & 1U) != 0;
      if (to_group) own_->push(*buffer);
      (frame.loopback ? own_ : peer_)->push(std::move(*buffer));
    }
    return frames.size();
  }
  void free_unsent(std::span<transport::TxFrame> frames) override {
    for (transport::TxFrame& frame : frames) delete static_cast<Bytes*>(frame.handle);
  }
  void release(std::span<transport::RxFrame> frames) override {
    for (transport::RxFrame& frame : frames) delete static_cast<Bytes*>(frame.handle);
  }

  Inbox& inbox() { return *own_; }

 private:
  const std::shared_ptr<Inbox> own_;
  const std::shared_ptr<Inbox> peer_;
};

/// The real domain, except for registrations that a test refuses.
class BreakableMemory final : public odp::MemoryDomain {
 public:
  explicit BreakableMemory(std::unique_ptr<odp::MemoryDomain> real) : real_(std::move(real)) {}
  odp::RegionResult register_region(const odp::RegionRequest& request) override {
    if (faults().refuse_regions) return {ENOMEM, 0};
    return real_->register_region(request);
  }
  int deregister_region(odp::Key key) override { return real_->deregister_region(key); }
  int replace_region(odp::Key key, const odp::RegionRequest& request) override {
    if (faults().refuse_regions) return ENOMEM;
    return real_->replace_region(key, request);
  }
  std::unique_ptr<odp::EngineSession> attach_engine() override { return real_->attach_engine(); }
  void hint_will_write(odp::ProtectionDomain domain, std::span<const odp::WriteHint> hints,
                       odp::SettledRange& settled) override {
    real_->hint_will_write(domain, hints, settled);
  }
  [[nodiscard]] const std::atomic<uint64_t>& page_losses() const override { return real_->page_losses(); }
  bool region_counters(odp::Key key, odp::RegionCounters& counters) override {
    return real_->region_counters(key, counters);
  }
  int prefetch(odp::ProtectionDomain domain, std::span<const odp::PrefetchRange> ranges,
               odp::PrefetchKind kind, bool wait) override {
    return real_->prefetch(domain, ranges, kind, wait);
  }
  [[nodiscard]] odp::RegionResult allocate_window(odp::ProtectionDomain domain,
                                                  odp::WindowType type) override {
    return real_->allocate_window(domain, type);
  }
  [[nodiscard]] int deallocate_window(odp::Key key) override { return real_->deallocate_window(key); }
  [[nodiscard]] odp::Counters counters() const override { return real_->counters(); }

 private:
  const std::unique_ptr<odp::MemoryDomain> real_;
};

std::atomic<int> running{0};
std::atomic<uint64_t> drive_count{0};
std::atomic<uint64_t> rest_count{0};
std::atomic<uint64_t> turn_count{0};
std::atomic<int> joins{0};

std::mutex failures_mutex;
std::vector<transport::QpFailure> failures;  ///< guarded by failures_mutex

/// Forwards events: the core is created before verbs provides their sink.
class EventRelay final : public transport::EventSink {
 public:
  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override {
    if (transport::EventSink* const to = sink) to->on_qp_event(qpn, user, event);
  }
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override {
    if (transport::EventSink* const to = sink) to->on_cq_event(cq, event);
  }
  void on_completion(transport::CompletionQueue* cq) override {
    if (transport::EventSink* const to = sink) to->on_completion(cq);
  }
  void on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) override {
    if (transport::EventSink* const to = sink) to->on_srq_event(srq, event);
  }
  status::FailureCause on_qp_failure(const transport::QpFailure& failure) override {
    const std::lock_guard guard(failures_mutex);
    failures.push_back(failure);
    records.add(transport::record_of(failure, !faults().link_down, monotonic_ns()));
    return records.at(records.count() - 1).cause;
  }
  void on_device_event(transport::AsyncEvent event) override {
    if (transport::EventSink* const to = sink) to->on_device_event(event);
  }
  std::atomic<transport::EventSink*> sink{nullptr};
  status::FailureRing records;  ///< guarded by failures_mutex
};

wire::Gid link_local(uint8_t host) {
  wire::Gid gid;
  gid.bytes = {0xfe, 0x80};
  gid.bytes[15] = host;
  return gid;
}

DeviceDescription description_of(const std::string& name) {
  const uint8_t host = name == "mem0" ? 1 : 2;
  DeviceDescription description;
  description.name = name;
  description.mac.bytes = {2, 0x46, 0x4c, 0, 0, host};
  description.gids = {wire::Gid::from_ipv4(0xc6120000U | host), link_local(host)};  // 198.18.0.host
  description.max_path_mtu_bytes = 2048;
  description.vendor_part_id = 4119;
  description.device_memory_bytes = 64 << 10;
  return description;
}

/// Running devices, for events that a test raises.
struct Running {
  std::mutex mutex;
  std::map<std::string, EventRelay*> relays;
};
Running& running_relays() {
  static Running instance;
  return instance;
}

class MemoryBackend final : public DeviceBackend {
 public:
  MemoryBackend(const std::string& name, std::unique_ptr<odp::MemoryDomain> memory)
      : description_(description_of(name)),
        memory_(std::move(memory)),
        port_(inboxes().at(name), inboxes().at(name == "mem0" ? "mem1" : "mem0")) {
    const uint32_t count = static_cast<uint32_t>(faults().cores.load());
    for (uint32_t index = 0; index < count; ++index)
      lanes_.push_back(std::make_unique<Lane>(config(index, count), memory_, port_, relay_));
    {
      const std::lock_guard lock(running_relays().mutex);
      running_relays().relays[name] = &relay_;
    }
    ++running;
  }
  ~MemoryBackend() override {
    --running;
    const std::lock_guard lock(running_relays().mutex);
    running_relays().relays.erase(description_.name);
  }

  const DeviceDescription& description() const override { return description_; }
  bool last_failure(uint32_t /*core_index*/, uint32_t qpn, TimeNs since,
                    status::FailureRecord& record) override {
    const std::lock_guard guard(failures_mutex);
    const status::FailureRecord* const found = relay_.records.newest_of(qpn, since);
    if (found != nullptr) record = *found;
    return found != nullptr;
  }
  record::ControlWriter* controls() override {
    return faults().record_calls ? &recorded_calls().writer : nullptr;
  }
  bool wants_reasons() const override { return faults().log_reasons; }
  void log_reason(const std::string& line) override {
    const std::lock_guard lock(reasons_mutex());
    reasons().push_back(line);
  }
  odp::MemoryDomain& memory() override { return memory_; }
  uint32_t core_count() const override { return static_cast<uint32_t>(lanes_.size()); }
  transport::Core& core(uint32_t index) override { return lanes_[index]->core; }

  using DeviceBackend::call;
  using DeviceBackend::core;
  void call(uint32_t core_index, void (*function)(void*), void* argument) override {
    const std::lock_guard turn(lanes_[core_index]->turn);
    function(argument);
  }

  void rest() override { ++rest_count; }
  void drive() override {
    ++drive_count;
    if (faults().missed_drives > 0) {
      --faults().missed_drives;
      return;
    }
    for (Bytes& bytes : port_.inbox().take()) hand_over(std::move(bytes));
    for (const auto& lane : lanes_)
      if (const std::unique_lock turn(lane->turn, std::try_to_lock); turn.owns_lock()) run_turn(*lane);
  }
  void run_turns() override {
    ++turn_count;
    for (Bytes& bytes : port_.inbox().take()) hand_over(std::move(bytes));
    for (const auto& lane : lanes_) {
      const std::lock_guard turn(lane->turn);
      run_turn(*lane);
    }
  }

  int resolve(const wire::Gid& gid, wire::MacAddress& mac) override {
    if (faults().neighbours_silent) return EHOSTUNREACH;
    if (wire::is_multicast(gid)) {
      mac = {{0x01, 0x00, 0x5e, 0, 0, 1}};
      return 0;
    }
    for (const char* name : {"mem0", "mem1"}) {
      const DeviceDescription device = description_of(name);
      if (std::find(device.gids.begin(), device.gids.end(), gid) == device.gids.end()) continue;
      mac = device.mac;
      return 0;
    }
    return EHOSTUNREACH;
  }

  int join_multicast(const wire::Gid& /*gid*/) override {
    ++joins;
    return 0;
  }
  void leave_multicast(const wire::Gid& /*gid*/) override { --joins; }

  TimeNs now() override {
    return static_cast<TimeNs>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  bool link_up() override { return !faults().link_down; }
  PortCounters port_counters() override {
    PortCounters counters;
    counters.arp_in = 77;
    return counters;
  }
  void set_event_sink(transport::EventSink* sink) override { relay_.sink = sink; }
  double measure_port_tx(size_t frame_bytes, unsigned milliseconds) override {
    return static_cast<double>(frame_bytes) * milliseconds;
  }
  double measure_port_rx(unsigned milliseconds) override { return milliseconds; }

 private:
  /// One core and the state that only its turns use.
  struct Lane {
    Lane(const transport::CoreConfig& config, odp::MemoryDomain& memory, MemoryPort& port, EventRelay& relay)
        : index(config.core_index), session(memory.attach_engine()), core(config, *session, port, &relay) {}
    const uint32_t index;
    std::mutex turn;
    const std::unique_ptr<odp::EngineSession> session;
    transport::Core core;
    Inbox frames;
  };

  static transport::CoreConfig config(uint32_t index, uint32_t count) {
    transport::CoreConfig config;
    config.max_path_mtu_bytes = 2048;
    config.core_index = index;
    config.core_count = count;
    return config;
  }

  /// Delivers the frame to the core that owns the QP; a multicast frame to each core.
  void hand_over(Bytes frame) {
    constexpr uint32_t kMulticastQpn = 0xffffff;
    wire::Packet packet;
    const bool parsed = wire::parse(frame, packet, wire::kNothingVerified) == wire::ParseError::none;
    const uint32_t qpn = parsed ? packet.bth.destination_qpn : 0;
    if (parsed && qpn == kMulticastQpn) {
      for (size_t i = 1; i < lanes_.size(); ++i) lanes_[i]->frames.push(frame);
      lanes_[0]->frames.push(std::move(frame));
    } else {
      lanes_[transport::owner_of(qpn, core_count())]->frames.push(std::move(frame));
    }
  }

  void run_turn(Lane& lane) {
    lane.session->enter();
    std::vector<transport::RxFrame> burst;
    for (Bytes& bytes : lane.frames.take()) {
      auto* const frame = new Bytes(std::move(bytes));
      burst.push_back({frame->data(), static_cast<uint32_t>(frame->size()), wire::kNothingVerified, frame});
    }
    suffer(lane);
    if (!burst.empty()) lane.core.on_packets(burst, now());
    lane.core.poll(now());
    lane.session->leave();
  }

  /// As an engine does with what a scenario has decided for its device.
  void suffer(Lane& lane) {
    trouble::Director* const director = trouble::director();
    if (director == nullptr || !director->has_pending()) return;
    std::array<trouble::Pending, 16> actions;
    const auto is_wanted = [&](const trouble::Pending& one) {
      if (one.kind != trouble::Action::Kind::fail_qp) return one.handle == lane.index;
      return transport::owner_of(static_cast<uint32_t>(one.handle), core_count()) == lane.index;
    };
    const size_t count = director->take_pending(director->device(description_.name), is_wanted, actions);
    for (const trouble::Pending& action : std::span(actions).first(count)) {
      const auto event = static_cast<transport::AsyncEvent>(action.number);
      if (action.kind == trouble::Action::Kind::fail_qp) {
        lane.core.fail_qp(static_cast<uint32_t>(action.handle), now());
        continue;
      }
      if (event == transport::AsyncEvent::device_fatal) {
        lane.core.fail_qps(now());
        if (lane.index + 1 < core_count()) director->pass_on(action);
      }
      if (lane.index == 0) relay_.on_device_event(event);
    }
  }

  const DeviceDescription description_;
  BreakableMemory memory_;
  MemoryPort port_;
  EventRelay relay_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace

Faults& faults() {
  static Faults instance;
  return instance;
}

std::vector<record::ControlRow> take_recorded_calls() {
  RecordedCalls& calls = recorded_calls();
  std::vector<record::ControlRow> rows;
  for (; calls.taken < std::atomic_ref(calls.written).load(); ++calls.taken)
    rows.push_back(calls.rows[calls.taken % record::kControlRows]);
  return rows;
}

std::vector<std::string> take_reasons() {
  const std::lock_guard lock(reasons_mutex());
  return std::exchange(reasons(), {});
}

std::vector<transport::QpFailure> take_failures() {
  const std::lock_guard guard(failures_mutex);
  return std::exchange(failures, {});
}

int running_devices() {
  return running;
}

int multicast_joins() {
  return joins;
}

void raise_device_event(const std::string& device, transport::AsyncEvent event) {
  Running& devices = running_relays();
  const std::lock_guard lock(devices.mutex);
  devices.relays.at(device)->on_device_event(event);
}

uint64_t turns_of_all_cores() {
  return turn_count;
}

uint64_t drives() {
  return drive_count;
}

uint64_t rests() {
  return rest_count;
}

}  // namespace test

std::vector<DeviceDescription> list_devices(std::string& error) {
  if (test::faults().bad_configuration) {
    error = "test.toml:3: device.port.kind: \"foo\" is not one of memif, ring";
    return {};
  }
  return {test::description_of("mem0"), test::description_of("mem1")};
}

bool expects_link(const std::string& /*name*/) {
  return !test::faults().link_down;
}

std::shared_ptr<DeviceBackend> open_device(const std::string& name, std::string& error) {
  if (test::faults().open_fails) {
    error = "no such port";
    return nullptr;
  }
  odp::DomainConfig config;
  config.realtime_pager = false;
  config.allow_unguarded = true;  // these tests have no hooks, and perhaps no userfaultfd
  auto memory = odp::MemoryDomain::create(config, error);
  if (memory == nullptr) return nullptr;
  (void)test::inboxes().at(name)->take();  // frames that arrived while the device was off are lost
  return std::make_shared<test::MemoryBackend>(name, std::move(memory));
}

double measure_copy_crc(size_t bytes, unsigned milliseconds) {
  return static_cast<double>(bytes * milliseconds);
}

void configure(const std::string& path) {
  test::faults().bad_configuration = path == "bad.toml";
}

}  // namespace faultline::verbs
