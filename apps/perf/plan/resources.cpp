// SPDX-License-Identifier: BSD-3-Clause
#include "apps/perf/plan/resources.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include <faultline/faultline.h>
#include <sys/mman.h>

namespace faultline::perf {

namespace {

constexpr uint32_t kWantedInlineBytes = 64;

[[noreturn]] void fail(const std::string& what, int error) {
  throw VerbsError(what + ": " + std::strerror(error));
}

ibv_mtu mtu_value(uint32_t bytes) {
  switch (bytes) {
    case 256:
      return IBV_MTU_256;
    case 512:
      return IBV_MTU_512;
    case 1024:
      return IBV_MTU_1024;
    case 2048:
      return IBV_MTU_2048;
    default:
      return IBV_MTU_4096;
  }
}

}  // namespace

PerfDevice::PerfDevice(const std::string& config_path, const std::string& name, bool start) {
  if (!config_path.empty() && faultline_configure(config_path.c_str()) != 0)
    throw ConfigError(faultline_last_error());
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) {
    const std::string why = faultline_last_error();
    throw ConfigError(why.empty() ? "no device is configured: give --config or set FAULTLINE_CONFIG" : why);
  }
  ibv_device* chosen = nullptr;
  for (int i = 0; i < count && chosen == nullptr; ++i)
    if (name.empty() || name == ibv_get_device_name(list[i])) chosen = list[i];
  if (chosen != nullptr) context_ = ibv_open_device(chosen);
  const int error = errno;
  ibv_free_device_list(list);
  if (chosen == nullptr) throw ConfigError("--device: the configuration has no device \"" + name + "\"");
  if (context_ == nullptr) {
    const std::string why = faultline_last_error();
    throw ConfigError(why.empty() ? std::string("cannot open the device: ") + std::strerror(error) : why);
  }
  ibv_port_attr port{};
  if (const int failed = ibv_query_port(context_, kPort, &port); failed != 0) fail("ibv_query_port", failed);
  max_mtu_bytes_ = 128U << port.max_mtu;
  if (ibv_query_gid(context_, kPort, 0, &gid_) != 0) fail("ibv_query_gid", errno);
  if (!start) return;
  pd_ = ibv_alloc_pd(context_);
  if (pd_ != nullptr) return;
  // The device opens with its first PD, so a port that does not come up is reported here.
  const int failure = errno;
  const std::string why = faultline_last_error();
  // Without --config the library has printed the line.
  if (!config_path.empty() && !why.empty()) throw ConfigError(why);
  fail("ibv_alloc_pd", failure);
}

PerfDevice::~PerfDevice() {
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (context_ != nullptr) ibv_close_device(context_);
}

std::map<std::string, uint64_t> PerfDevice::counters() const {
  std::map<std::string, uint64_t> result;
  std::vector<faultline_counter> counters(256);
  int count = faultline_query_counters(context_, counters.data(), counters.size());
  if (count > static_cast<int>(counters.size())) {
    counters.resize(static_cast<size_t>(count));
    count = faultline_query_counters(context_, counters.data(), counters.size());
  }
  for (int i = 0; i < count; ++i)
    result[counters[static_cast<size_t>(i)].name] = counters[static_cast<size_t>(i)].value;
  return result;
}

void PerfDevice::wait_for_link(int timeout_ms) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    ibv_port_attr port{};
    if (const int failed = ibv_query_port(context_, kPort, &port); failed != 0)
      fail("ibv_query_port", failed);
    if (port.state == IBV_PORT_ACTIVE) return;
    if (std::chrono::steady_clock::now() >= deadline) throw VerbsError("the port's link is down");
    faultline_progress(context_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Protection::Protection(const PerfDevice& device) : pd_(ibv_alloc_pd(device.context())) {
  if (pd_ == nullptr) fail("ibv_alloc_pd", errno);
}

Protection::~Protection() {
  ibv_dealloc_pd(pd_);
}

Buffer::Buffer(const Protection& protection, uint64_t bytes, RegionKind kind)
    : protection_(protection), bytes_((bytes + kPageBytes - 1) / kPageBytes * kPageBytes) {
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("mmap of the buffer", errno);
  data_ = static_cast<uint8_t*>(memory);
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                          (kind == RegionKind::odp ? static_cast<unsigned>(IBV_ACCESS_ON_DEMAND) : 0U);
  mr_ = ibv_reg_mr(protection.pd(), data_, bytes_, access);
  if (mr_ == nullptr) {
    const int error = errno;
    munmap(data_, bytes_);
    fail("ibv_reg_mr", error);
  }
}

Buffer::~Buffer() {
  ibv_dereg_mr(mr_);
  munmap(data_, bytes_);
}

std::map<std::string, uint64_t> Buffer::counters() const {
  std::array<faultline_counter, 16> counters;
  const int count = faultline_query_mr_counters(mr_, counters.data(), counters.size());
  if (count < 0) fail("faultline_query_mr_counters", errno);
  std::map<std::string, uint64_t> result;
  for (size_t i = 0; i < std::min(static_cast<size_t>(count), counters.size()); ++i)
    result[counters[i].name] = counters[i].value;
  return result;
}

void Buffer::touch() const {
  for (uint64_t at = 0; at < bytes_; at += kPageBytes) {
    volatile uint8_t* page = data_ + at;
    *page = *page;
  }
}

void Buffer::drop() const {
  madvise(data_, bytes_, MADV_DONTNEED);
}

void Buffer::prefetch() const {
  // An element's length is 32 bits, so long buffers are prefetched in pieces.
  constexpr uint64_t kPieceBytes = uint64_t{1} << 30;
  for (uint64_t at = 0; at < bytes_; at += kPieceBytes) {
    ibv_sge piece{reinterpret_cast<uint64_t>(data_) + at,
                  static_cast<uint32_t>(std::min(kPieceBytes, bytes_ - at)), mr_->lkey};
    const int error = ibv_advise_mr(protection_.pd(), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                    IBV_ADVISE_MR_FLAG_FLUSH, &piece, 1);
    if (error != 0) fail("ibv_advise_mr", error);
  }
}

QpSet::QpSet(const Protection& protection, ibv_qp_type type, uint32_t count, uint32_t send_depth,
             uint32_t receive_depth, uint8_t reads_under_way)
    : protection_(protection), type_(type), reads_under_way_(reads_under_way) {
  const uint64_t completions = uint64_t{count} * (send_depth + receive_depth) + 16;
  ibv_device_attr limits{};
  if (ibv_query_device(protection.context(), &limits) != 0) fail("ibv_query_device", errno);
  cq_ =
      ibv_create_cq(protection.context(),
                    static_cast<int>(std::min<uint64_t>(completions, static_cast<uint64_t>(limits.max_cqe))),
                    nullptr, nullptr, 0);
  if (cq_ == nullptr) fail("ibv_create_cq", errno);
  std::random_device random;
  for (uint32_t i = 0; i < count; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = type;
    init.cap.max_send_wr = send_depth;
    init.cap.max_recv_wr = std::max(receive_depth, 1U);
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.cap.max_inline_data = kWantedInlineBytes;
    ibv_qp* qp = ibv_create_qp(protection.pd(), &init);
    if (qp == nullptr) fail("ibv_create_qp", errno);
    inline_bytes_ = init.cap.max_inline_data;
    qps_.push_back(qp);
    local_.push_back({qp->qp_num, random() & 0xffffffU});
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = kPort;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (type == IBV_QPT_UD) {
      attr.qkey = kQkey;
      mask |= IBV_QP_QKEY;
    } else {
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
      mask |= IBV_QP_ACCESS_FLAGS;
    }
    if (const int error = ibv_modify_qp(qp, &attr, mask); error != 0) fail("ibv_modify_qp to INIT", error);
  }
}

QpSet::~QpSet() {
  for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
  if (ah_ != nullptr) ibv_destroy_ah(ah_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
}

void QpSet::connect(const std::vector<Endpoint>& remote, const ibv_gid& remote_gid, uint32_t mtu_bytes,
                    uint8_t ack_timeout) {
  if (remote.size() != qps_.size()) throw VerbsError("the peer has another number of QPs");
  remote_ = remote;
  remote_gid_ = remote_gid;
  ibv_ah_attr av{};
  av.is_global = 1;
  av.port_num = kPort;
  av.grh.dgid = remote_gid;
  av.grh.sgid_index = 0;
  av.grh.hop_limit = 64;
  for (uint32_t i = 0; i < count(); ++i) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    int mask = IBV_QP_STATE;
    if (type_ == IBV_QPT_RC) {
      attr.ah_attr = av;
      attr.path_mtu = mtu_value(mtu_bytes);
      attr.dest_qp_num = remote[i].qpn;
      attr.rq_psn = remote[i].psn;
      attr.max_dest_rd_atomic = reads_under_way_;
      attr.min_rnr_timer = 1;  // 10 us: the receiver reposts soon
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
              IBV_QP_MIN_RNR_TIMER;
    }
    if (const int error = ibv_modify_qp(qps_[i], &attr, mask); error != 0)
      fail("ibv_modify_qp to RTR", error);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = local_[i].psn;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type_ == IBV_QPT_RC) {
      attr.timeout = ack_timeout;
      attr.retry_cnt = 7;
      attr.rnr_retry = 7;
      attr.max_rd_atomic = reads_under_way_;
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (const int error = ibv_modify_qp(qps_[i], &attr, mask); error != 0)
      fail("ibv_modify_qp to RTS", error);
  }
  if (type_ == IBV_QPT_UD) {
    ah_ = ibv_create_ah(protection_.pd(), &av);
    if (ah_ == nullptr) fail("ibv_create_ah", errno);
  }
}

nlohmann::json to_json(const std::vector<Endpoint>& endpoints) {
  nlohmann::json list = nlohmann::json::array();
  for (const Endpoint& endpoint : endpoints) list.push_back({endpoint.qpn, endpoint.psn});
  return list;
}

std::vector<Endpoint> endpoints_from(const nlohmann::json& list) {
  std::vector<Endpoint> endpoints;
  for (const auto& item : list) endpoints.push_back({item.at(0).get<uint32_t>(), item.at(1).get<uint32_t>()});
  return endpoints;
}

nlohmann::json to_json(const ibv_gid& gid) {
  return std::vector<int>(std::begin(gid.raw), std::end(gid.raw));
}

ibv_gid gid_from(const nlohmann::json& text) {
  const auto bytes = text.get<std::vector<int>>();
  ibv_gid gid{};
  for (size_t i = 0; i < std::min<size_t>(16, bytes.size()); ++i) gid.raw[i] = static_cast<uint8_t>(bytes[i]);
  return gid;
}

}  // namespace faultline::perf
