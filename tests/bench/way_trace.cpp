// SPDX-License-Identifier: BSD-3-Clause
// Records which functions the library enters for one WRITE and for one page fault, for tests/bench/way.py.
// Two devices of one process are joined by net_ring, and one thread drives both by ibv_poll_cq. The program
// records calls only if it and the library are built with -finstrument-functions; way.py configures that.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include <dlfcn.h>
#include <faultline/faultline.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

namespace {

/// A call or return of an instrumented function, or the beginning of a step.
struct Event {
  enum class Kind : uint8_t { enter, leave, step };
  const void* function;
  const void* call_site;
  const char* step;
  uint32_t thread;
  Kind kind;
};

constexpr size_t kMostEvents = 1 << 20;
// Static memory: the hooks run in signal handlers and in threads that start or end.
std::array<Event, kMostEvents> events;
std::atomic<size_t> events_recorded{0};
std::atomic<uint32_t> threads_seen{0};
std::atomic<bool> is_recording{false};
std::array<pthread_t, 256> thread_handles;
thread_local uint32_t own_number = 0;  // from 1
thread_local bool is_muted = false;

[[gnu::no_instrument_function]] void record(Event::Kind kind, const void* function, const void* call_site,
                                            const char* step) {
  if (!is_recording.load(std::memory_order_relaxed) || is_muted) return;
  if (own_number == 0) {
    own_number = threads_seen.fetch_add(1) + 1;
    if (own_number > thread_handles.size()) std::abort();
    thread_handles[own_number - 1] = pthread_self();
  }
  const size_t index = events_recorded.fetch_add(1);
  if (index < kMostEvents) events[index] = {function, call_site, step, own_number, kind};
}

}  // namespace

extern "C" {
[[gnu::no_instrument_function, gnu::visibility("default")]] void __cyg_profile_func_enter(void* function,
                                                                                          void* call_site) {
  record(Event::Kind::enter, function, call_site, nullptr);
}
[[gnu::no_instrument_function, gnu::visibility("default")]] void __cyg_profile_func_exit(void* function,
                                                                                         void* call_site) {
  record(Event::Kind::leave, function, call_site, nullptr);
}
}

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kColdPages = 4096;
constexpr uint32_t kSmallBytes = 64;
// The engine itself serves faults of at most two pages (docs/design/fault.md).
constexpr uint32_t kPagerBytes = 3 * kPageBytes;
constexpr int kWarmUp = 64;
constexpr int kAttempts = 16;  // the progress thread may drive a device in some of them

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "way_trace: %s: %s\n", what, faultline_last_error());
  std::_Exit(1);
}

/// The beginning of a step: the script cuts the events there.
void begin_step(const char* name) {
  record(Event::Kind::step, nullptr, nullptr, name);
}

/// One device with one QP, a resident buffer, and memory for page faults.
struct Side {
  explicit Side(int number) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr || count <= number) fail("ibv_get_device_list");
    context = ibv_open_device(list[number]);
    ibv_free_device_list(list);
    if (context == nullptr) fail("ibv_open_device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    buffer = map(kPagerBytes, MAP_POPULATE);
    cold = map(kColdPages * kPageBytes, 0);
    madvise(cold, kColdPages * kPageBytes, MADV_NOHUGEPAGE);
    mr = registered(buffer, kPagerBytes);
    cold_mr = registered(cold, kColdPages * kPageBytes);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 1, 1, 0};
    qp = ibv_create_qp(pd, &init);
    if (qp == nullptr || ibv_query_gid(context, 1, 0, &gid) != 0) fail("ibv_create_qp");
  }
  ~Side() {
    ibv_destroy_qp(qp);
    ibv_dereg_mr(cold_mr);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  static uint8_t* map(size_t bytes, int flags) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return static_cast<uint8_t*>(memory);
  }
  [[nodiscard]] ibv_mr* registered(uint8_t* memory, size_t bytes) const {
    ibv_mr* const region = ibv_reg_mr(
        pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ON_DEMAND);
    if (region == nullptr) fail("ibv_reg_mr");
    return region;
  }

  void connect(const Side& to) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    int error =
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = to.qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = to.gid;
    attr.ah_attr.grh.hop_limit = 64;
    if (error == 0)
      error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 21;  // 9 s: nothing is retransmitted meanwhile
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    if (error == 0)
      error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0) fail("ibv_modify_qp");
  }

  void post_write(uint8_t* to, uint32_t rkey, uint32_t bytes) const {
    ibv_sge piece{reinterpret_cast<uint64_t>(buffer), bytes, mr->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {reinterpret_cast<uint64_t>(to), rkey};
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp, &request, &bad) != 0) fail("ibv_post_send");
  }

  /// Returns the number of completions. Drives the engine if the queue is empty.
  [[nodiscard]] int poll() const {
    std::array<ibv_wc, 4> completions;
    const int count = ibv_poll_cq(cq, completions.size(), completions.data());
    if (count < 0) fail("ibv_poll_cq");
    for (int i = 0; i < count; ++i)
      if (completions[static_cast<size_t>(i)].status != IBV_WC_SUCCESS) fail("a completion");
    return count;
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  ibv_mr* cold_mr = nullptr;
  ibv_gid gid{};
  uint8_t* buffer = nullptr;
  uint8_t* cold = nullptr;
};

/// Runs both sides until `left` WRITEs are completed. Nothing of it is recorded.
void finish(const Side& from, const Side& to, int left) {
  const bool before = is_muted;
  is_muted = true;
  while (left > 0) {
    static_cast<void>(to.poll());
    left -= from.poll();
  }
  is_muted = before;
}

void idle_turns(const Side& from, const Side& to) {
  is_muted = true;
  for (int i = 0; i < 4; ++i) static_cast<void>(from.poll() + to.poll());
  is_muted = false;
}

/// The requester sends within ibv_post_send; then one turn of each side.
void write_at_once(const Side& from, const Side& to) {
  idle_turns(from, to);
  begin_step("write: post");
  from.post_write(to.buffer, to.mr->rkey, kSmallBytes);
  begin_step("write: responder");
  static_cast<void>(to.poll());
  begin_step("write: requester");
  const int completed = from.poll();
  begin_step("end");
  finish(from, to, 1 - completed);
}

/// A second post without a turn in between rings the doorbell; the next turn sends.
void write_by_doorbell(const Side& from, const Side& to) {
  idle_turns(from, to);
  from.post_write(to.buffer, to.mr->rkey, kSmallBytes);
  begin_step("doorbell: post");
  from.post_write(to.buffer, to.mr->rkey, kSmallBytes);
  begin_step("doorbell: turn");
  int completed = from.poll();
  begin_step("end");
  finish(from, to, 2 - completed);
}

/// Each turn of the responder is a step, until the WRITE is completed.
void fault(const Side& from, const Side& to, uint8_t* page, uint32_t bytes, const char* name) {
  idle_turns(from, to);
  is_muted = true;
  from.post_write(page, to.cold_mr->rkey, bytes);
  for (int completed = 0; completed == 0; completed = from.poll()) {
    is_muted = false;
    begin_step(name);
    static_cast<void>(to.poll());
    begin_step("between");
    is_muted = true;
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000};
    nanosleep(&kPause, nullptr);
  }
  is_muted = false;
  begin_step("end");
}

void run(const Side& from, const Side& to) {
  uint8_t* page = to.cold;
  const auto next_pages = [&page] { return std::exchange(page, page + 8 * kPageBytes); };
  for (int i = 0; i < kWarmUp; ++i) {
    from.post_write(to.buffer, to.mr->rkey, kSmallBytes);
    finish(from, to, 1);
  }
  for (const uint32_t bytes : {kSmallBytes, kPagerBytes}) {
    from.post_write(next_pages(), to.cold_mr->rkey, bytes);
    finish(from, to, 1);
  }
  is_recording.store(true);
  for (int i = 0; i < kAttempts; ++i) {
    write_at_once(from, to);
    write_by_doorbell(from, to);
    fault(from, to, next_pages(), kSmallBytes, "short fault: turn");
    fault(from, to, next_pages(), kPagerBytes, "pager fault: turn");
  }
  is_recording.store(false);
}

/// Writes a line for each module, thread and event. Addresses are relative to their module.
void write_events(const char* path) {
  std::ofstream file(path);
  std::map<std::string, size_t> modules;
  const auto place_of = [&](const void* address) {
    Dl_info info{};
    if (dladdr(address, &info) == 0) return std::string("- 0");
    const auto [found, is_new] = modules.emplace(info.dli_fname, modules.size());
    if (is_new) file << "module " << found->second << ' ' << info.dli_fname << '\n';
    const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(info.dli_fbase);
    return std::to_string(found->second) + ' ' + std::to_string(offset);
  };
  std::array<char, 16> name{};
  for (uint32_t i = 0; i < threads_seen.load(); ++i) {
    if (pthread_getname_np(thread_handles[i], name.data(), name.size()) != 0) name[0] = '\0';
    file << "thread " << i + 1 << ' ' << name.data() << '\n';
  }
  const size_t count = events_recorded.load();
  if (count > kMostEvents) fail("more events than room");
  for (size_t i = 0; i < count; ++i) {
    const Event& event = events[i];
    if (event.kind == Event::Kind::step) {
      file << "step " << event.thread << ' ' << event.step << '\n';
      continue;
    }
    const std::string function = place_of(event.function);
    const std::string call_site = place_of(event.call_site);
    file << (event.kind == Event::Kind::enter ? "enter " : "leave ") << event.thread << ' ' << function << ' '
         << call_site << '\n';
  }
  if (!file.flush()) fail(path);
}

/// The configuration of two devices on a pair of rings, in a folder that exists while this lives.
class Devices {
 public:
  Devices() {
    folder_ = (std::filesystem::temp_directory_path() / "fl-way-XXXXXX").string();
    if (mkdtemp(folder_.data()) == nullptr) fail("mkdtemp");
    const std::string path = folder_ + "/devices.toml";
    std::ofstream file(path);
    for (const char side : {'a', 'b'})
      file << "[[device]]\nname = \"faultline" << side << "\"\nip = \"198.18.0." << (side == 'a' ? 1 : 2)
           << "/24\"\n[device.port]\nkind = \"ring\"\nwire = \"way\"\nside = \"" << side << "\"\n";
    file.close();
    if (faultline_configure(path.c_str()) != 0) fail("faultline_configure");
  }
  ~Devices() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

 private:
  std::string folder_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "way_trace: needs the name of the file for its events\n");
    return 2;
  }
  const Devices devices;
  const Side from(0);
  const Side to(1);
  from.connect(to);
  to.connect(from);
  run(from, to);
  write_events(argv[1]);
  return 0;
}
