// SPDX-License-Identifier: BSD-3-Clause
// Our objects behind rdma-core's: each starts with (derives from) the public struct, so that the pointer a
// program holds is the pointer we work with. A QP and a CQ outlive everything that refers to them: counts say
// so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include <infiniband/verbs.h>

#include "stack/transport/core.hpp"
#include "stack/transport/spin_lock.hpp"
#include "stack/verbs/async_events.hpp"
#include "stack/verbs/backend.hpp"

// The header's macros of these names route to its inline functions; here the functions themselves are meant.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/// A function that libfaultline exports.
#define FAULTLINE_VERB extern "C" __attribute__((visibility("default")))

namespace faultline::verbs {

using transport::SpinLock;

struct Device : ibv_device {
  /// Providers' "is this mine?" functions read what lies behind an ibv_device: they must find zeros.
  std::array<std::byte, 1024> zero_padding{};
  DeviceDescription description;
  int index = 0;
};

/// A running device of this process, shared by the contexts that opened it.
class Engine final : public transport::EventSink {
 public:
  explicit Engine(std::shared_ptr<DeviceBackend> device_backend);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override;
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override;

  /// Runs a callable on the core's owner thread.
  template <typename Function>
  void on_owner(Function&& function) {
    backend->call([](void* argument) { (*static_cast<std::remove_reference_t<Function>*>(argument))(); },
                  &function);
  }

  const std::shared_ptr<DeviceBackend> backend;
  std::atomic<uint32_t> qps{0}, cqs{0}, mrs{0}, pds{0}, ahs{0};
  std::atomic<odp::ProtectionDomain> last_domain{0};
};

/// The running device of that name, started if need be. nullptr and one line in `error`.
[[nodiscard]] std::shared_ptr<Engine> join_engine(const std::string& name, std::string& error);

struct Context : verbs_context {
  Device* owner = nullptr;
  AsyncEvents events;
  std::atomic<uint32_t> live_objects{0};  ///< PDs and CQs: each of them needs the context
  std::mutex start_mutex;
  std::shared_ptr<Engine> engine;  ///< set once, under start_mutex
  std::atomic<Engine*> started{nullptr};
};

struct Pd : ibv_pd {
  odp::ProtectionDomain domain = 0;
  std::atomic<uint32_t> references{0};   ///< MRs, QPs, AHs
  std::atomic<uint32_t> odp_regions{0};  ///< no hint is needed where there are none
};

struct Mr : ibv_mr {
  uint64_t iova = 0;
  uint32_t access = 0;
};

struct Ah : ibv_ah {
  transport::AddressVector av;
  bool port_from_flow_label = false;  ///< else the UDP source port is a hash of the two QPNs, made at post
};

struct Cq : ibv_cq, transport::CompletionQueue {
  explicit Cq(uint32_t entries) : transport::CompletionQueue(entries) {}
  SpinLock poll_lock;
  std::atomic<uint32_t> references{0};  ///< QPs, once for each of their queues
  EventSource event_source;
  Engine* engine = nullptr;
};

struct Qp : ibv_qp {
  transport::QueuePair* transport_qp = nullptr;
  transport::SendRing* send_ring = nullptr;
  transport::ReceiveRing* receive_ring = nullptr;
  Engine* engine = nullptr;
  SpinLock send_lock;
  SpinLock receive_lock;
  uint32_t qkey = 0;          ///< send_lock
  uint8_t max_rd_atomic = 0;  ///< send_lock

  std::mutex control_mutex;  ///< modify, query
  ibv_qp_attr attributes{};  ///< as the program set them
  ibv_qp_init_attr created{};
  EventSource event_source;
};

[[nodiscard]] inline Device& device_of(ibv_device* device) {
  return *static_cast<Device*>(device);
}
[[nodiscard]] inline Context& context_of(ibv_context* context) {
  return *static_cast<Context*>(reinterpret_cast<verbs_context*>(reinterpret_cast<uint8_t*>(context) -
                                                                 offsetof(verbs_context, context)));
}
[[nodiscard]] inline Pd& pd_of(ibv_pd* pd) {
  return *static_cast<Pd*>(pd);
}
[[nodiscard]] inline Cq& cq_of(ibv_cq* cq) {
  return *static_cast<Cq*>(cq);
}
[[nodiscard]] inline Qp& qp_of(ibv_qp* qp) {
  return *static_cast<Qp*>(qp);
}

/// The context's engine, started by the first object that needs it: threads do not survive a fork, and
/// programs fork after open and query. nullptr with errno ENODEV and the reason in faultline_last_error().
[[nodiscard]] Engine* engine_of(Context& context);

/// The reason that faultline_last_error() gives on this thread.
void set_last_error(std::string text);

/// Counts one more object against a device limit; false where it is reached.
[[nodiscard]] inline bool acquire(std::atomic<uint32_t>& count, uint32_t limit) {
  uint32_t now = count.load(std::memory_order_relaxed);
  do {
    if (now >= limit) return false;
  } while (!count.compare_exchange_weak(now, now + 1, std::memory_order_relaxed));
  return true;
}
inline void release(std::atomic<uint32_t>& count) {
  count.fetch_sub(1, std::memory_order_release);
}

/// "Returns NULL and sets errno."
[[nodiscard]] inline std::nullptr_t fail(int error) {
  errno = error;
  return nullptr;
}

// The data path, called through ibv_context.ops.
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int poll_cq(ibv_cq* cq, int entries, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// The calls that the header's inline functions make through verbs_context.
int query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attributes, size_t length_bytes);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, size_t length_bytes);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges, uint32_t sge_count);

/// Fills the ops whose objects cannot exist, which the inline functions call unchecked.
void set_unsupported_ops(verbs_context& context);

}  // namespace faultline::verbs
