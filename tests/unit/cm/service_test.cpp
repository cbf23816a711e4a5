// SPDX-License-Identifier: BSD-3-Clause
// Managers on devices with the real transport core: datagrams through QP1, threads, forks and termination.
#include "stack/cm/service.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/wire/link/link.hpp"
#include "tests/hang_limit.hpp"
#include "tests/unit/verbs/memory_backend.hpp"

namespace faultline::cm::test::service_test {
namespace {

using verbs::DeviceBackend;

constexpr uint64_t kService = wire::ip_service_id(0x0106, 7174);

/// Collects events; accepts requests after serve() has been called.
class Program final : public EventHandler {
 public:
  void serve(Service& service) { service_ = &service; }

  void on_cm_event(const Event& event) override {
    // Events arrive in order, and the handler may use the service.
    if (service_ != nullptr && event.kind == EventKind::requested) accept(event);
    const std::lock_guard guard(mutex_);
    events_.push_back(event);
    came_.notify_all();
  }

  void accept(const Event& request) {
    EXPECT_EQ(service_->with([&](Manager& manager, TimeNs now) {
      return manager.accept(request.id, {.qpn = 0x800000 | request.remote_qpn}, now);
    }),
              0);
  }

  /// Returns the next event of a kind, and of an ID if one is given.
  Event wait_for(EventKind kind, Id id = 0) {
    std::unique_lock lock(mutex_);
    for (;;) {
      for (auto at = events_.begin(); at != events_.end(); ++at)
        if (at->kind == kind && (id == 0 || at->id == id)) {
          const Event event = *at;
          events_.erase(at);
          return event;
        }
      if (came_.wait_for(lock, faultline::test::hang_limit()) == std::cv_status::timeout) {
        ADD_FAILURE() << "no event of kind " << static_cast<int>(kind);
        return {};
      }
    }
  }

 private:
  Service* service_ = nullptr;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Event> events_;
};

std::shared_ptr<DeviceBackend> open(const std::string& name) {
  std::string error;
  std::shared_ptr<DeviceBackend> device = verbs::open_device(name, error);
  EXPECT_NE(device, nullptr) << error;
  return device;
}

/// Drives the devices' engines, as the background progress thread does.
class Driver {
 public:
  explicit Driver(std::vector<std::shared_ptr<DeviceBackend>> devices)
      : devices_(std::move(devices)), thread_([this] {
          while (!stop_) {
            for (const auto& device : devices_) device->drive();
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
        }) {}
  ~Driver() {
    stop_ = true;
    thread_.join();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

 private:
  const std::vector<std::shared_ptr<DeviceBackend>> devices_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Services : public testing::TestWithParam<int> {
 protected:
  Services() { verbs::test::faults().cores = GetParam(); }
  ~Services() override { verbs::test::faults().cores = 1; }

  [[nodiscard]] static Path path_between(DeviceBackend& from, DeviceBackend& to) {
    Path path;
    path.av.path.source_mac = from.description().mac;
    path.av.path.destination_mac = to.description().mac;
    path.av.path.source_gid = from.description().gids[0];
    path.av.path.destination_gid = to.description().gids[0];
    path.av.loopback = &from == &to;
    return path;
  }
  [[nodiscard]] static Id connect(Service& from, DeviceBackend& to, uint32_t qpn) {
    Id id = 0;
    EXPECT_EQ(from.with([&](Manager& manager, TimeNs now) {
      const Path path = path_between(from.device(), to);
      return manager.connect(
          {.service_id = kService,
           .path = path,
           .qpn = qpn,
           .ip = wire::IpAddressing{path.av.path.source_gid, path.av.path.destination_gid, 5}},
          now, id);
    }),
              0);
    return id;
  }
  static void listen(Service& service) {
    Id id = 0;
    EXPECT_EQ(
        service.with([&](Manager& manager, TimeNs) { return manager.listen({.service_id = kService}, id); }),
        0);
  }
  static void confirm(Service& service, Id id) {
    EXPECT_EQ(service.with([&](Manager& manager, TimeNs now) { return manager.confirm(id, {}, now); }), 0);
  }

  const std::shared_ptr<DeviceBackend> mem0_ = open("mem0");
  const std::shared_ptr<DeviceBackend> mem1_ = open("mem1");
  Driver driver_{{mem0_, mem1_}};
  Program client_, server_;
};

INSTANTIATE_TEST_SUITE_P(Cores, Services, testing::Values(1, 2, 3));

TEST_P(Services, ConnectThroughQp1) {
  Service client(mem0_, {}, client_);
  Service server(mem1_, {}, server_);
  listen(server);
  server_.serve(server);
  const Id id = connect(client, *mem1_, 0x111);
  const Event requested = server_.wait_for(EventKind::requested);
  EXPECT_EQ(requested.ip->source, mem0_->description().gids[0]);
  EXPECT_EQ(requested.path.av.path.destination_mac, mem0_->description().mac);
  EXPECT_FALSE(requested.path.av.loopback);
  EXPECT_EQ(client_.wait_for(EventKind::replied).remote_qpn, 0x800111U);
  confirm(client, id);
  server_.wait_for(EventKind::established, requested.id);
  EXPECT_EQ(client.with([&](Manager& manager, TimeNs now) { return manager.disconnect(id, {}, now); }), 0);
  server_.wait_for(EventKind::disconnected, requested.id);
  EXPECT_EQ(
      server.with([&](Manager& manager, TimeNs now) { return manager.disconnect(requested.id, {}, now); }),
      0);
  client_.wait_for(EventKind::disconnected, id);
  // No thread polls the client any more: the service's thread ends the TIME_WAIT.
  client_.wait_for(EventKind::time_wait_over, id);
  uint64_t sent = 0;
  for (uint32_t core = 0; core < mem0_->core_count(); ++core)
    sent += mem0_->core(core).counters().management_sent;
  EXPECT_EQ(sent, 3U + client.with([](Manager& manager, TimeNs) { return manager.counters().sent_again; }));
}

TEST_P(Services, ConnectToThemselves) {
  Service both(mem0_, {}, server_);
  listen(both);
  server_.serve(both);
  const Id id = connect(both, *mem0_, 0x111);
  const Event requested = server_.wait_for(EventKind::requested);
  EXPECT_TRUE(requested.path.av.loopback);
  server_.wait_for(EventKind::replied, id);
  confirm(both, id);
  server_.wait_for(EventKind::established, requested.id);
}

TEST_P(Services, ServeManyThreads) {
  Service client(mem0_, {}, client_);
  Service server(mem1_, {}, server_);
  listen(server);
  server_.serve(server);
  constexpr int kThreads = 4, kEach = 25;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        const auto qpn = static_cast<uint32_t>(0x1000 * (thread + 1) + i);
        const Id id = connect(client, *mem1_, qpn);
        EXPECT_EQ(client_.wait_for(EventKind::replied, id).remote_qpn, 0x800000 | qpn);
        confirm(client, id);
        client.with([&](Manager& manager, TimeNs now) { manager.destroy(id, now); });
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads * kEach; ++i) server_.wait_for(EventKind::disconnected);
  EXPECT_EQ(server.overruns(), 0U);
}

TEST_P(Services, SayGoodByeWhenTheyGo) {
  Service server(mem1_, {}, server_);
  listen(server);
  server_.serve(server);
  {
    Service client(mem0_, {}, client_);
    const Id id = connect(client, *mem1_, 0x111);
    client_.wait_for(EventKind::replied, id);
    confirm(client, id);
    server_.wait_for(EventKind::established);
  }
  server_.wait_for(EventKind::disconnected);
}

// The program waits for the answer and need not poll. Without DeviceBackend::rest() the device would rely on
// the program to drive it.
TEST_P(Services, LetTheDeviceDriveItselfAfterEachMessage) {
  Service client(mem0_, {}, client_);
  Service server(mem1_, {}, server_);
  listen(server);
  uint64_t before = verbs::test::rests();
  const Id id = connect(client, *mem1_, 0x111);
  EXPECT_GT(verbs::test::rests(), before);
  const Event requested = server_.wait_for(EventKind::requested);
  before = verbs::test::rests();
  EXPECT_EQ(server.with([&](Manager& manager, TimeNs now) {
    return manager.accept(requested.id, {.qpn = 0x800111}, now);
  }),
            0);
  client_.wait_for(EventKind::replied, id);
  EXPECT_GT(verbs::test::rests(), before);
}

TEST_P(Services, UseNoIdOfTheServiceBefore) {
  // The peer keeps their entries for as long as TIME_WAIT lasts.
  std::vector<Id> ids;
  for (int life = 0; life < 20; ++life) {
    Service client(mem0_, {}, client_);
    for (int i = 0; i < 3; ++i) ids.push_back(connect(client, *mem1_, 0x111));
  }
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 1] + 1) << i;
}

TEST_P(Services, AreTheParentsAfterAFork) {
  auto client = std::make_unique<Service>(mem0_, ManagerConfig{}, client_);
  const pid_t child = fork();
  if (child == 0) {
    alarm(faultline::test::hang_seconds());
    client.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  // The parent's service still works: no process listens at that service ID.
  Service server(mem1_, {}, server_);
  const Id id = connect(*client, *mem1_, 1);
  EXPECT_EQ(client_.wait_for(EventKind::rejected, id).reason, wire::RejectReason::invalid_service_id);
}

// ---- checks before the manager ----

struct Sink final : transport::ManagementSink {
  void on_management(std::span<const uint8_t, wire::kMadBytes> /*mad*/,
                     const transport::ManagementSource& source, TimeNs /*now*/) override {
    ++taken;
    last = source;
  }
  int taken = 0;
  transport::ManagementSource last;
};

class Guards : public testing::Test {
 protected:
  Guards() {
    path_.source_mac = peer_->description().mac;
    path_.destination_mac = device_->description().mac;
    path_.source_gid = peer_->description().gids[0];
    path_.destination_gid = device_->description().gids[0];
    path_.traffic_class = 0x23;  // with a congestion mark (ECN CE)
    fields_.bth.opcode = wire::Opcode::ud_send_only;
    fields_.bth.destination_qpn = wire::kManagementQpn;
    fields_.deth = {wire::kManagementQkey, wire::kManagementQpn};
  }

  /// Returns the drop reason, or nothing.
  std::optional<transport::DropReason> receive(size_t payload_bytes = wire::kMadBytes) {
    const wire::FrameTemplate header(path_);
    std::vector<uint8_t> bytes(wire::kMaxFrameBytes);
    EXPECT_NE(header.write_headers(bytes, fields_, static_cast<uint32_t>(payload_bytes)), nullptr);
    bytes.resize(header.seal(bytes, fields_.bth.opcode, static_cast<uint32_t>(payload_bytes)));
    transport::RxFrame frame{bytes.data(), static_cast<uint32_t>(bytes.size()), wire::kNothingVerified,
                             nullptr};
    transport::Core& core = device_->core();
    const auto before = core.counters().drops;
    const int taken_before = sink_.taken;
    core.set_management_sink(use_sink_ ? &sink_ : nullptr);
    core.on_packets({&frame, 1}, 1);
    const auto after = core.counters().drops;
    for (size_t i = 0; i < after.size(); ++i)
      if (after[i] != before[i]) {
        EXPECT_EQ(sink_.taken, taken_before);
        return static_cast<transport::DropReason>(i);
      }
    EXPECT_EQ(sink_.taken, taken_before + 1);
    return std::nullopt;
  }

  const std::shared_ptr<DeviceBackend> device_ = open("mem0");
  const std::shared_ptr<DeviceBackend> peer_ = open("mem1");
  wire::PathHeader path_;
  wire::PacketFields fields_;
  Sink sink_;
  bool use_sink_ = true;
};

TEST_F(Guards, LetAGoodOneThroughWithItsWayBack) {
  fields_.bth.pkey = 0x7fff;
  EXPECT_EQ(receive(), std::nullopt);
  EXPECT_EQ(sink_.last.reply.path.destination_gid, path_.source_gid);
  EXPECT_EQ(sink_.last.reply.path.source_gid, path_.destination_gid);
  EXPECT_EQ(sink_.last.reply.path.destination_mac, path_.source_mac);
  EXPECT_EQ(sink_.last.reply.path.source_mac, path_.destination_mac);
  EXPECT_EQ(sink_.last.reply.path.traffic_class, 0x20);
  EXPECT_EQ(sink_.last.pkey, 0x7fff);
  EXPECT_EQ(sink_.last.source_qpn, 1U);
  EXPECT_FALSE(sink_.last.reply.loopback);
}

TEST_F(Guards, DropTheOthers) {
  use_sink_ = false;
  EXPECT_EQ(receive(), transport::DropReason::unknown_qpn);
  use_sink_ = true;
  EXPECT_EQ(receive(wire::kMadBytes - 1), transport::DropReason::payload_rule);
  EXPECT_EQ(receive(wire::kMadBytes + 4), transport::DropReason::payload_rule);
  EXPECT_EQ(receive(0), transport::DropReason::payload_rule);
  fields_.deth.qkey = 0x80010001;
  EXPECT_EQ(receive(), transport::DropReason::qkey);
  fields_.deth.qkey = wire::kManagementQkey;
  fields_.bth.pkey = 0x1234;
  EXPECT_EQ(receive(), transport::DropReason::pkey);
  fields_.bth.pkey = wire::kDefaultPkey;
  fields_.bth.opcode = wire::Opcode::rc_send_only;
  EXPECT_EQ(receive(), transport::DropReason::wrong_service);
  fields_.bth.opcode = wire::Opcode::ud_send_only;
  path_.destination_gid = wire::Gid::from_ipv4(0xe0000001);
  EXPECT_EQ(receive(), transport::DropReason::source_address);
  // A QPN without a QP is dropped.
  path_.destination_gid = device_->description().gids[0];
  fields_.bth.destination_qpn = 2;
  EXPECT_EQ(receive(), transport::DropReason::unknown_qpn);
}

// A port that accepts nothing for a while fills QP1. send_mad() then fails, and no accepted message is lost.
TEST_F(Guards, AFullQp1SaysSo) {
  transport::Core& core = device_->core();
  const transport::AddressVector to{path_, false};
  const wire::MadBytes mad{};
  EXPECT_EQ(core.next_deadline(), kNever);
  size_t taken = 0;
  while (core.send_mad(mad, {.path = path_}, wire::kDefaultPkey)) ASSERT_LT(++taken, 100'000U);
  EXPECT_TRUE(core.has_mads_to_send());
  EXPECT_NE(core.next_deadline(), kNever);
  device_->drive();
  EXPECT_FALSE(core.has_mads_to_send());
  EXPECT_EQ(core.counters().management_sent, taken);
  EXPECT_TRUE(core.send_mad(mad, to, wire::kDefaultPkey));
}

}  // namespace
}  // namespace faultline::cm::test::service_test
