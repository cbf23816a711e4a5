// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/verbs/memory_backend.hpp"

#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "stack/verbs/backend.hpp"
#include "stack/wire/link.hpp"

namespace faultline::verbs {

namespace test {

namespace {

using Bytes = std::vector<uint8_t>;

/// Frames on their way to one device.
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

/// The real domain, but for registrations that a test refuses.
class BreakableMemory final : public odp::MemoryDomain {
 public:
  explicit BreakableMemory(std::unique_ptr<odp::MemoryDomain> real) : real_(std::move(real)) {}
  odp::RegionResult register_region(const odp::RegionRequest& request) override {
    if (faults().refuse_regions) return {ENOMEM, 0};
    return real_->register_region(request);
  }
  int deregister_region(odp::Key key) override { return real_->deregister_region(key); }
  std::unique_ptr<odp::EngineSession> attach_engine() override { return real_->attach_engine(); }
  void hint_will_write(const odp::Target& target, uint64_t va, uint64_t length_bytes) override {
    real_->hint_will_write(target, va, length_bytes);
  }
  int prefetch(const odp::Target& target, uint64_t va, uint64_t length_bytes, bool wait) override {
    return real_->prefetch(target, va, length_bytes, wait);
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

/// Passes events on: the core is made before verbs says where they go.
class EventRelay final : public transport::EventSink {
 public:
  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override {
    if (sink != nullptr) sink->on_qp_event(qpn, user, event);
  }
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override {
    if (sink != nullptr) sink->on_cq_event(cq, event);
  }
  void on_completion(transport::CompletionQueue* cq) override {
    if (sink != nullptr) sink->on_completion(cq);
  }
  void on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) override {
    if (sink != nullptr) sink->on_srq_event(srq, event);
  }
  void on_device_event(transport::AsyncEvent event) override {
    if (sink != nullptr) sink->on_device_event(event);
  }
  transport::EventSink* sink = nullptr;
};

DeviceDescription description_of(const std::string& name) {
  const uint8_t host = name == "mem0" ? 1 : 2;
  DeviceDescription description;
  description.name = name;
  description.mac.bytes = {2, 0x46, 0x4c, 0, 0, host};
  description.gids = {wire::Gid::from_ipv4(0xc6120000U | host)};  // 198.18.0.host
  description.max_path_mtu_bytes = 2048;
  description.vendor_part_id = 4119;
  return description;
}

class MemoryBackend final : public DeviceBackend {
 public:
  MemoryBackend(const std::string& name, std::unique_ptr<odp::MemoryDomain> memory)
      : description_(description_of(name)),
        memory_(std::move(memory)),
        session_(memory_.attach_engine()),
        port_(inboxes().at(name), inboxes().at(name == "mem0" ? "mem1" : "mem0")),
        core_(config(), *session_, port_, &relay_) {
    ++running;
  }
  ~MemoryBackend() override { --running; }

  const DeviceDescription& description() const override { return description_; }
  odp::MemoryDomain& memory() override { return memory_; }
  transport::Core& core(uint32_t /*index*/) override { return core_; }

  using DeviceBackend::call;
  using DeviceBackend::core;
  void call(uint32_t /*core_index*/, void (*function)(void*), void* argument) override {
    const std::lock_guard turn(turn_);
    function(argument);
  }

  void drive() override {
    ++drive_count;
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) return;
    session_->enter();
    std::vector<transport::RxFrame> burst;
    for (Bytes& bytes : port_.inbox().take()) {
      auto* const frame = new Bytes(std::move(bytes));
      burst.push_back({frame->data(), static_cast<uint32_t>(frame->size()), wire::kNothingVerified, frame});
    }
    if (!burst.empty()) core_.on_packets(burst, now());
    core_.poll(now());
    session_->leave();
  }

  int resolve(const wire::Gid& gid, wire::MacAddress& mac) override {
    if (faults().neighbours_silent) return EHOSTUNREACH;
    if (wire::is_multicast(gid)) {
      mac = {{0x01, 0x00, 0x5e, 0, 0, 1}};
      return 0;
    }
    for (const char* name : {"mem0", "mem1"}) {
      const DeviceDescription device = description_of(name);
      if (device.gids[0] != gid) continue;
      mac = device.mac;
      return 0;
    }
    return EHOSTUNREACH;
  }

  int join_multicast(const wire::Gid& /*gid*/) override { return 0; }
  void leave_multicast(const wire::Gid& /*gid*/) override {}

  transport::TimeNs now() override {
    return static_cast<transport::TimeNs>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  bool link_up() override { return !faults().link_down; }
  GlueCounters glue_counters() override {
    GlueCounters counters;
    counters.arp_in = 77;
    return counters;
  }
  void set_event_sink(transport::EventSink* sink) override {
    const std::lock_guard turn(turn_);
    relay_.sink = sink;
  }
  double measure_port_tx(size_t frame_bytes, unsigned milliseconds) override {
    return static_cast<double>(frame_bytes) * milliseconds;
  }
  double measure_port_rx(unsigned milliseconds) override { return milliseconds; }

 private:
  static transport::CoreConfig config() {
    transport::CoreConfig config;
    config.max_path_mtu_bytes = 2048;
    return config;
  }

  const DeviceDescription description_;
  BreakableMemory memory_;
  const std::unique_ptr<odp::EngineSession> session_;
  MemoryPort port_;
  EventRelay relay_;
  std::mutex turn_;
  transport::Core core_;
};

}  // namespace

Faults& faults() {
  static Faults instance;
  return instance;
}

int running_devices() {
  return running;
}

uint64_t drives() {
  return drive_count;
}

}  // namespace test

std::vector<DeviceDescription> list_devices(std::string& error) {
  if (test::faults().bad_configuration) {
    error = "test.toml:3: device.port.kind: \"foo\" is not one of memif, ring";
    return {};
  }
  return {test::description_of("mem0"), test::description_of("mem1")};
}

std::shared_ptr<DeviceBackend> open_device(const std::string& name, std::string& error) {
  if (test::faults().open_fails) {
    error = "no such port";
    return nullptr;
  }
  odp::DomainConfig config;
  config.realtime_pager = false;
  auto memory = odp::MemoryDomain::create(config, error);
  if (memory == nullptr) return nullptr;
  (void)test::inboxes().at(name)->take();  // what came while the device was off is lost
  return std::make_shared<test::MemoryBackend>(name, std::move(memory));
}

double measure_copy_crc(size_t bytes, unsigned milliseconds) {
  return static_cast<double>(bytes * milliseconds);
}

void configure(const std::string& path) {
  test::faults().bad_configuration = path == "bad.toml";
}

}  // namespace faultline::verbs
