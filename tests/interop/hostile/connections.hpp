// SPDX-License-Identifier: BSD-3-Clause
// The connection managers of both devices: one serves a service that anybody may ask for and leaves requests
// unanswered for a while, as slow programs do, and another that answers at once, which a good peer uses.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "stack/cm/service.hpp"

namespace faultline::hostile {

inline constexpr uint64_t kSlowService = wire::ip_service_id(0x0106, 7471);
inline constexpr uint64_t kQuickService = wire::ip_service_id(0x0106, 7472);
inline constexpr uint32_t kBacklog = 64;

class Connections final : private cm::EventHandler {
 public:
  Connections(const std::shared_ptr<verbs::DeviceBackend>& served,
              const std::shared_ptr<verbs::DeviceBackend>& asking);
  ~Connections() override;
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// A connection from one device to the other, made and ended; false where that takes minutes.
  [[nodiscard]] bool try_once();
  [[nodiscard]] cm::ManagerCounters counters();
  [[nodiscard]] uint64_t overruns() const { return served_.overruns(); }
  /// Requests that the program has been told of and has not answered.
  [[nodiscard]] size_t held();
  [[nodiscard]] size_t most_held();

 private:
  enum class Step { idle, asked, replied, ended };

  void on_cm_event(const cm::Event& event) override;
  /// Of the asking device.
  struct Asker final : cm::EventHandler {
    explicit Asker(Connections& its_owner) : owner(its_owner) {}
    void on_cm_event(const cm::Event& event) override;
    Connections& owner;
  };
  /// A request that waits for the program.
  struct Held {
    cm::Id id = 0;
    bool datagrams = false;
  };
  void hold(cm::Id request, bool datagrams);
  void reach(Step step);
  [[nodiscard]] bool wait_for(Step step);

  std::shared_ptr<verbs::DeviceBackend> served_device_, asking_device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Held> held_;
  size_t most_held_ = 0;
  Step step_ = Step::idle;
  Asker asker_{*this};
  cm::Service served_, asking_;
};

}  // namespace faultline::hostile
