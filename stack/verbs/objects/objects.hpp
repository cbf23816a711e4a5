// SPDX-License-Identifier: BSD-3-Clause
// The library's verbs objects. Each derives from rdma-core's public struct, which is its first base, so that
// the program's pointer is also the library's. Reference counts make a QP and a CQ outlive everything that
// refers to them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <infiniband/verbs.h>

#include "odp/regions/memory_domain.hpp"
#include "stack/base/process/fork_generation.hpp"
#include "stack/base/spin_lock.hpp"
#include "stack/transport/core/core.hpp"
#include "stack/transport/qp/completion_counter.hpp"
#include "stack/transport/qp/shared_receive_queue.hpp"
#include "stack/verbs/objects/async_events.hpp"
#include "stack/verbs/objects/backend.hpp"
#include "stack/verbs/objects/completion_channel.hpp"
#include "stack/verbs/objects/live_objects.hpp"
#include "stack/verbs/objects/program_memory.hpp"
#include "stack/verbs/objects/published.hpp"

// The header's macros of these names call its inline functions; here the functions themselves are meant.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/// Marks a function that libfaultline exports.
#define FAULTLINE_VERB extern "C" __attribute__((visibility("default")))

namespace faultline::verbs {

struct VerbsDevice : ibv_device {
  /// Providers identify their own devices by bytes that follow the ibv_device; they must read zeros here.
  std::array<std::byte, 1024> zero_padding{};
  DeviceDescription description;
  int index = 0;
  std::atomic<uint64_t> device_memory_used_bytes{0};
};

struct Context;
class DmaBuf;
class ExportableMemory;
struct Dm;
struct DeviceMemory;
struct Mr;
struct Pd;
struct Qp;
struct XrcDomain;

/// A transport QP and the program's handles to it: one, except for XRC targets (ibv_open_qp). The transport's
/// events refer to this object.
struct SharedQp {
  transport::QueuePair* transport_qp = nullptr;
  uint32_t core_index = 0;
  uint32_t xrc_domain = 0;  ///< the XRC domain of an XRC target, else 0
  std::unique_ptr<ProgramMemory> ring_memory;
  TimeNs created_ns = 0;
  Published<status::QpRow> published;  ///< its core writes the row
  SharedQp* next_target = nullptr;     ///< guarded by OpenDevice::xrc_mutex

  std::mutex handles_mutex;
  Qp* handles = nullptr;  ///< guarded by handles_mutex

  std::mutex control_mutex;  ///< serialises modify and query
  /// The counters of its operations, which the core adds to: each is a Counter and counts this as an
  /// attachment. Null: none. Guarded by control_mutex.
  std::unique_ptr<transport::CountedOperations> counted;
  ibv_qp_attr attributes{};  ///< as the program set them
  ibv_qp_init_attr created{};
};

/// Receives the event that the device is permanently gone, as the contexts do. Runs on an engine's thread and
/// must not block.
class RemovalListener {
 public:
  virtual ~RemovalListener() = default;
  virtual void on_device_removed() = 0;
};

/// A running device of this process, shared by the contexts that have opened it.
class OpenDevice final : public transport::EventSink {
 public:
  explicit OpenDevice(std::shared_ptr<DeviceBackend> device_backend);
  ~OpenDevice() override;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  void on_qp_event(uint32_t qpn, void* user, transport::AsyncEvent event) override;
  void on_cq_event(transport::CompletionQueue* cq, transport::AsyncEvent event) override;
  void on_completion(transport::CompletionQueue* cq) override;
  void on_srq_event(transport::SharedReceiveQueue* srq, transport::AsyncEvent event) override;
  void on_device_event(transport::AsyncEvent event) override;

  /// Runs a callable on a core's owner thread.
  template <typename Function>
  void on_owner(uint32_t core_index, Function&& function) {
    backend->call(
        core_index, [](void* argument) { (*static_cast<std::remove_reference_t<Function>*>(argument))(); },
        &function);
  }
  /// Runs a callable on each core's owner thread, one core after another.
  template <typename Function>
  void on_every_owner(Function&& function) {
    for (uint32_t index = 0; index < backend->core_count(); ++index)
      on_owner(index, [&] { function(backend->core(index)); });
  }

  /// Returns the core for a QP or SRQ that any core may own; round-robin.
  [[nodiscard]] uint32_t place() {
    return next_core_.fetch_add(1, std::memory_order_relaxed) % backend->core_count();
  }

  void add_context(Context& context);
  void remove_context(Context& context);
  void add_listener(RemovalListener& listener);
  void remove_listener(RemovalListener& listener);

  /// Returns true in a forked child, in which no new object may use the parent's device.
  [[nodiscard]] bool is_of_parent_process() const { return fork_generation() != generation_; }

  const std::shared_ptr<DeviceBackend> backend;
  std::atomic<uint32_t> qps{0}, cqs{0}, mrs{0}, pds{0}, ahs{0}, srqs{0}, mws{0}, xrcds{0}, counters{0};
  std::atomic<odp::ProtectionDomain> last_domain{0};
  std::atomic<uint32_t> last_cq_handle{0}, last_counter_handle{0};

  std::mutex xrc_mutex;
  // Guarded by xrc_mutex.
  XrcDomain* xrc_domains = nullptr;
  SharedQp* xrc_targets = nullptr;
  uint32_t last_xrc_domain = 0;

 private:
  const uint32_t generation_ = fork_generation();
  std::atomic<uint32_t> next_core_{0};
  std::mutex contexts_mutex_;
  Context* contexts_ = nullptr;
  std::vector<RemovalListener*> listeners_;  ///< guarded by contexts_mutex_
};

/// Returns the running device of that name; starts it if necessary. On failure returns nullptr and one line
/// in `error`.
[[nodiscard]] std::shared_ptr<OpenDevice> join_engine(const std::string& name, std::string& error);
/// Returns the running device of that name, or nullptr if it is not running.
[[nodiscard]] std::shared_ptr<OpenDevice> running_engine(const std::string& name);

/// Returns those of the devices that no scenario hides, as ibv_get_device_list() does. No scenario decides
/// about this call.
[[nodiscard]] std::vector<VerbsDevice*> visible_devices(std::span<const DeviceDescription> descriptions);

struct Context : verbs_context {
  VerbsDevice* owner = nullptr;
  AsyncEvents events;
  EventSource port_active, port_error, device_fatal;
  std::atomic<uint32_t> live_objects{0};  ///< PDs, CQs, channels, XRC domains; each keeps the context in use
  std::mutex start_mutex;
  std::shared_ptr<OpenDevice> engine;  ///< set once, under start_mutex
  std::atomic<OpenDevice*> started{nullptr};
  Context* next = nullptr;                   ///< in the engine's list
  Context* next_open = nullptr;              ///< in the list of open contexts
  uint64_t file_device = 0, file_inode = 0;  ///< of cmd_fd; contexts with equal values share handles
  SpinLock objects_lock;
  Pd* pds = nullptr;  ///< guarded by objects_lock
  Mr* mrs = nullptr;  ///< guarded by objects_lock
  Dm* dms = nullptr;  ///< guarded by objects_lock
  const LiveObject live{&context, ObjectKind::context};
};

struct Td : ibv_td {
  const LiveObject live{this, ObjectKind::td};
  std::atomic<uint32_t> references{0};  ///< from parent domains
};

/// The program's allocators for rings (ibv_alloc_parent_domain(3)).
struct Allocators {
  void* (*alloc)(ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t type) = nullptr;
  void (*free)(ibv_pd* pd, void* context, void* memory, uint64_t type) = nullptr;
  void* context = nullptr;
};

/// A protection domain, or an alias of one: a parent domain, or the handle of an import.
struct Pd : ibv_pd {
  odp::ProtectionDomain domain = 0;
  std::atomic<uint32_t> references{0};  ///< from MRs, MWs, QPs, SRQs, AHs, CQs and aliases
  std::atomic<uint32_t> own_odp_regions{0};
  std::atomic<uint32_t>* odp_regions = &own_odp_regions;  ///< if 0, receives need no hints
  Pd* base = nullptr;                                     ///< the domain that this alias represents
  bool is_parent = false;
  bool imported = false;
  bool abandoned = false;  ///< unimported before its objects were destroyed
  Td* thread_domain = nullptr;
  Allocators allocators;
  Pd *previous = nullptr, *next = nullptr;  ///< guarded by Context::objects_lock
  Published<status::PdRow> published;
  const LiveObject live{this, ObjectKind::pd};

  void stand_for(Pd& other) {
    domain = other.domain;
    odp_regions = other.odp_regions;
    base = &other;
    base->references.fetch_add(1, std::memory_order_relaxed);
  }
};

struct Mr : ibv_mr {
  uint64_t iova = 0;
  uint32_t access = 0;
  bool imported = false;
  bool exported = false;  ///< another handle may have deregistered it
  // The memory that it covers, if it is not the program's own: of one kind at most.
  std::shared_ptr<DeviceMemory> device_memory;  ///< ibv_reg_dm_mr
  std::shared_ptr<DmaBuf> dma_buf;              ///< ibv_reg_dmabuf_mr
  Mr *previous = nullptr, *next = nullptr;      ///< guarded by Context::objects_lock
  Published<status::MrRow> published;
  const LiveObject live{this, ObjectKind::mr};
};

struct Mw : ibv_mw {
  const LiveObject live{this, ObjectKind::mw};
};

/// Device memory: pages of this process that the device owns, so that no program unmaps them.
struct DeviceMemory {
  DeviceMemory(VerbsDevice& lender, uint8_t* start, uint64_t bytes);
  DeviceMemory(VerbsDevice& lender, std::unique_ptr<ExportableMemory> pages, uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  VerbsDevice& device;
  const std::unique_ptr<ExportableMemory> exportable;  ///< null where the kernel has no udmabuf
  uint8_t* const memory;
  const uint64_t length_bytes;
  const uint32_t handle;
  std::atomic<uint32_t> regions{0};
  std::atomic<bool> freed{false};  ///< by one handle; others may remain
};

struct Dm : ibv_dm {
  std::shared_ptr<DeviceMemory> shared;
  bool imported = false;
  Dm *previous = nullptr, *next = nullptr;  ///< guarded by Context::objects_lock
  const LiveObject live{this, ObjectKind::dm};
};

struct Ah : ibv_ah {
  transport::AddressVector av;
  const LiveObject live{this, ObjectKind::ah};
  bool port_from_flow_label = false;  ///< else posting hashes the two QPNs to the UDP source port
};

struct Cq : ibv_cq_ex, transport::CompletionQueue {
  Cq(uint32_t entries, std::pmr::memory_resource* memory)
      : ibv_cq_ex{}, transport::CompletionQueue(entries, memory) {}
  SpinLock poll_lock;
  std::atomic<bool> in_batch{false};  ///< poll_lock is held from ibv_start_poll to ibv_end_poll
  /// The request of ibv_req_notify_cq, until the queue is checked for waiting completions.
  enum class Look : uint8_t { none, any, solicited };
  std::atomic<Look> owed_look{Look::none};
  bool single_threaded = false;         ///< the program promised a single thread: no lock
  std::atomic<bool> moderated{false};   ///< a core may delay an event
  std::atomic<uint32_t> references{0};  ///< from QPs, once for each of their queues, and from XRC SRQs
  EventSource event_source;
  CompletionEventSource completion_events;  ///< guarded by the channel's lock
  OpenDevice* engine = nullptr;
  Pd* parent_domain = nullptr;
  std::unique_ptr<ProgramMemory> ring_memory;  ///< must outlive the ring
  transport::Completion current;    ///< valid between start_poll and end_poll; guarded by poll_lock
  int64_t wallclock_offset_ns = 0;  ///< guarded by poll_lock
  uint32_t left_of_batch = 0;       ///< completions that a scenario allows the batch; guarded by poll_lock
  bool with_wallclock = false;
  Published<status::CqRow> published;
  const LiveObject live{static_cast<ibv_cq_ex*>(this), ObjectKind::cq};
};

/// The fields of `ibv_comp_cntr`, of which a program may read.
struct PublicCounter {
  ibv_context* context = nullptr;
  uint32_t handle = 0;
};
struct Counter : PublicCounter, transport::CompletionCounter {
  OpenDevice* engine = nullptr;
  std::atomic<uint32_t> attachments{0};  ///< operations of QPs
  const LiveObject live{this, ObjectKind::counter};
};
/// Ends the references of a QP that is destroyed.
void detach_counters(SharedQp& shared);

struct XrcDomain {
  uint32_t number = 0;
  /// The core of all its targets and SRQs: a message to any target may name any SRQ.
  uint32_t core_index = 0;
  uint32_t opened = 0;        ///< guarded by OpenDevice::xrc_mutex
  XrcDomain* next = nullptr;  ///< guarded by OpenDevice::xrc_mutex
  bool has_inode = false;
  uint64_t device = 0, inode = 0;
};

struct Xrcd : ibv_xrcd {
  const LiveObject live{this, ObjectKind::xrcd};
  XrcDomain* domain = nullptr;
  std::atomic<uint32_t> references{0};  ///< from SRQs and QPs
};

struct Srq : ibv_srq {
  transport::SharedReceiveQueue* transport_srq = nullptr;
  uint32_t core_index = 0;
  OpenDevice* engine = nullptr;
  SpinLock lock;                        ///< serialises producers; protects the ring from a resize
  odp::SettledRange settled_receives;   ///< guarded by `lock`
  std::mutex control_mutex;             ///< serialises modify and query
  uint32_t max_wr = 0, max_sge = 0;     ///< guarded by control_mutex
  std::atomic<uint32_t> references{0};  ///< from QPs
  Cq* cq = nullptr;                     ///< of an XRC SRQ
  Xrcd* xrcd = nullptr;                 ///< of an XRC SRQ
  EventSource event_source;
  std::unique_ptr<ProgramMemory> ring_memory;
  Published<status::SrqRow> published;
  const LiveObject live{static_cast<ibv_srq*>(this), ObjectKind::srq};
};

/// The place of ibv_qp_ex::wr_flush, which the headers have from rdma-core 45 on, after the members of older
/// ones. A program that was compiled with newer headers calls it there.
struct QpWithFlush : ibv_qp_ex {
  void (*wr_flush)(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, size_t length_bytes, uint8_t type,
                   uint8_t level) = nullptr;
};
template <typename Header>
concept HasFlush = requires(Header qp) {
  qp.wr_flush;
};

struct Qp : std::conditional_t<HasFlush<ibv_qp_ex>, ibv_qp_ex, QpWithFlush> {
  std::shared_ptr<SharedQp> shared;
  Qp* next_handle = nullptr;  ///< guarded by SharedQp::handles_mutex
  const LiveObject live{static_cast<ibv_qp_ex*>(this), ObjectKind::qp};

  // The members that posting reads, in one cache line.
  alignas(64) transport::QueuePair* transport_qp = nullptr;
  transport::Core* core = nullptr;
  transport::SendRing* send_ring = nullptr;
  transport::ReceiveRing* receive_ring = nullptr;
  OpenDevice* engine = nullptr;
  Xrcd* xrcd = nullptr;
  SpinLock send_lock;
  SpinLock receive_lock;
  uint32_t qkey = 0;                   ///< guarded by send_lock
  uint8_t max_rd_atomic = 0;           ///< guarded by send_lock
  bool extended = false;               ///< created for ibv_wr_*
  odp::SettledRange settled_receives;  ///< guarded by receive_lock
  EventSource event_source;
  std::vector<wire::Gid> multicast;  ///< guarded by control_mutex

  // State of ibv_wr_* between start and complete; guarded by send_lock.
  transport::SendWqe* building = nullptr;
  int build_error = 0;
  bool addressed = false;  ///< the setter that the QP type requires was called
};

[[nodiscard]] inline VerbsDevice& device_of(ibv_device* device) {
  return *static_cast<VerbsDevice*>(device);
}
[[nodiscard]] inline Context& context_of(ibv_context* context) {
  return *static_cast<Context*>(reinterpret_cast<verbs_context*>(reinterpret_cast<uint8_t*>(context) -
                                                                 offsetof(verbs_context, context)));
}
[[nodiscard]] inline Pd& pd_of(ibv_pd* pd) {
  return *static_cast<Pd*>(pd);
}
// ibv_cq_ex begins with ibv_cq's fields, and ibv_qp_ex with an ibv_qp.
[[nodiscard]] inline Cq& cq_of(ibv_cq* cq) {
  return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq));
}
[[nodiscard]] inline Cq& cq_of(ibv_cq_ex* cq) {
  return *static_cast<Cq*>(cq);
}
[[nodiscard]] inline Qp& qp_of(ibv_qp* qp) {
  return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp));
}
[[nodiscard]] inline Qp& qp_of(ibv_qp_ex* qp) {
  return *static_cast<Qp*>(qp);
}
[[nodiscard]] inline Dm& dm_of(ibv_dm* dm) {
  return *static_cast<Dm*>(dm);
}
[[nodiscard]] inline Srq& srq_of(ibv_srq* srq) {
  return *static_cast<Srq*>(srq);
}
[[nodiscard]] inline Xrcd& xrcd_of(ibv_xrcd* xrcd) {
  return *static_cast<Xrcd*>(xrcd);
}

/// Returns whether two PDs share one protection domain, so that their objects may be combined; an alias
/// equals its base.
[[nodiscard]] inline bool same_domain(ibv_pd* a, ibv_pd* b) {
  return pd_of(a).domain == pd_of(b).domain;
}

/// Creates a context that takes ownership of `cmd_fd`. On failure returns nullptr with errno, and the caller
/// keeps it.
[[nodiscard]] ibv_context* make_context(VerbsDevice& device, int cmd_fd);
/// Makes the list of contexts whose objects can be imported. Returns false without memory.
[[nodiscard]] bool make_enrolment();
/// Adds the context to that list, after make_enrolment().
void enroll(Context& context);
void strike(Context& context);

/// Links an object into one of a context's lists, under the context's objects_lock.
template <typename Object>
void link(Object*& first, Object& object) {
  object.next = first;
  if (first != nullptr) first->previous = &object;
  first = &object;
}
template <typename Object>
void unlink(Object*& first, Object& object) {
  (object.previous == nullptr ? first : object.previous->next) = object.next;
  if (object.next != nullptr) object.next->previous = object.previous;
}

/// Creates another handle to the memory.
[[nodiscard]] ibv_dm* make_dm(Context& context, std::shared_ptr<DeviceMemory> memory, bool imported);
/// Removes a handle.
void remove_dm(Dm& dm);

/// Adds a PD to the context.
Pd* enlist(Context& context, Pd* pd);
/// Removes the abandoned handles that are aliases of `base`.
void remove_abandoned(const Pd& base);
/// Removes a PD, but does not decrement the context's count.
void remove_pd(Pd* pd);

/// Returns the context's engine, which the first object that needs it starts. The start is deferred because
/// threads do not survive a fork, and programs fork after open and query. A forked child starts its own
/// engine, unless the context holds objects of the parent. On failure returns nullptr with errno ENODEV (or
/// EIO: the engine is the parent's) and the reason in faultline_last_error().
[[nodiscard]] OpenDevice* open_device_of(Context& context);

/// Sets the text of faultline_last_error() on this thread.
void set_last_error(std::string text);

/// Returns the running device's description; a forked child's address may differ from the one its parent
/// opened.
[[nodiscard]] inline const DeviceDescription& description_of(const Context& context) {
  const OpenDevice* const engine = context.started.load(std::memory_order_acquire);
  return engine != nullptr ? engine->backend->description() : context.owner->description;
}

/// Counts one more object against a device limit. Returns false if the limit is reached.
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

/// Sets errno and returns nullptr.
[[nodiscard]] inline std::nullptr_t fail(int error) {
  errno = error;
  return nullptr;
}

/// Sets errno to an error, and returns it; 0: neither. "The value of errno" is what the man pages of verbs
/// promise: programs print errno after a failed call, or return it (libfabric).
[[nodiscard]] inline int refused(int error) {
  if (error != 0) errno = error;
  return error;
}

/// Initialises the mutex and condition with which a destroy call waits for the object's affiliated events.
template <typename Object>
void init_waiting(Object& object) {
  pthread_mutex_init(&object.mutex, nullptr);
  pthread_cond_init(&object.cond, nullptr);
}
/// Waits until `all_acknowledged`, then destroys the mutex and condition.
template <typename Object, typename Predicate>
void end_waiting(Object& object, Predicate all_acknowledged) {
  pthread_mutex_lock(&object.mutex);
  while (!all_acknowledged()) pthread_cond_wait(&object.cond, &object.mutex);
  pthread_mutex_unlock(&object.mutex);
  pthread_cond_destroy(&object.cond);
  pthread_mutex_destroy(&object.mutex);
}

// The data path; programs call these through ibv_context.ops.
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int poll_cq(ibv_cq* cq, int entries, ibv_wc* wc);
// The same with a scenario (stack/trouble), for devices that are opened with one.
int post_send_in_trouble(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv_in_trouble(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_recv_in_trouble(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int poll_cq_in_trouble(ibv_cq* cq, int entries, ibv_wc* wc);
int req_notify_cq_in_trouble(ibv_cq* cq, int solicited_only);
int bind_mw_in_trouble(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int req_notify_cq(ibv_cq* cq, int solicited_only);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);

// Functions that the header's inline functions call through verbs_context.
int query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attributes, size_t length_bytes);
/// ibv_device_attr_ex::device_cap_flags_ex.
[[nodiscard]] uint64_t device_capabilities();
/// ibv_device_attr::fw_ver: the configuration's, or the library's version.
[[nodiscard]] std::string firmware_of(const DeviceDescription& description);
/// Fills ibv_port_attr. `engine` is null if the device is not running.
[[nodiscard]] ibv_port_attr describe_port(const DeviceDescription& description, OpenDevice* engine);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, size_t length_bytes);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges, uint32_t sge_count);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init);
int get_srq_num(ibv_srq* srq, uint32_t* number);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* init);
int close_xrcd(ibv_xrcd* xrcd);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset_bytes, size_t length_bytes, unsigned int access);

/// Set the functions of a CQ's ibv_cq_ex part, and of a QP's ibv_qp_ex part.
void set_poll_functions(Cq& cq);
/// Raises the event for completions that were in the queue before ibv_req_notify_cq, now or at the end of the
/// open batch.
void look_at_waiting(Cq& cq);
void set_post_functions(Qp& qp);

}  // namespace faultline::verbs
