// SPDX-License-Identifier: BSD-3-Clause
// RAII owners of one side's verbs objects: device, protection domain, memory, CQs and QPs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <nlohmann/json.hpp>

#include "apps/perf/plan/options.hpp"

namespace faultline::perf {

inline constexpr uint8_t kPort = 1;
inline constexpr uint64_t kPageBytes = 4096;

/// A local verbs call failed. One line; exit status 1.
class VerbsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// The configuration is wrong. One line; exit status 2.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An open device with a protection domain.
class PerfDevice {
 public:
  /// With `start` false, the device only answers queries and pd() is nullptr.
  PerfDevice(const std::string& config_path, const std::string& name, bool start = true);
  ~PerfDevice();
  PerfDevice(const PerfDevice&) = delete;
  PerfDevice& operator=(const PerfDevice&) = delete;

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] uint32_t max_mtu_bytes() const { return max_mtu_bytes_; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  [[nodiscard]] std::map<std::string, uint64_t> counters() const;
  /// Waits until the port is active; throws after `timeout_ms`.
  void wait_for_link(int timeout_ms) const;

 private:
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_gid gid_{};
  uint32_t max_mtu_bytes_ = 0;
};

/// Protection domain of one run. A separate one, because a device's receive prefetch depends on what else the
/// domain holds.
class Protection {
 public:
  explicit Protection(const PerfDevice& device);
  ~Protection();
  Protection(const Protection&) = delete;
  Protection& operator=(const Protection&) = delete;

  [[nodiscard]] ibv_context* context() const { return pd_->context; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }

 private:
  ibv_pd* pd_;
};

/// Layout of the messages in a buffer: `slots` of `slot_bytes` for each QP.
struct Geometry {
  uint64_t message_bytes = 0;
  uint64_t header_bytes = 0;  ///< the 40 GRH bytes at the start of a UD receive
  uint64_t slot_bytes = 0;
  uint32_t slots = 0;
  uint32_t qps = 1;
  [[nodiscard]] uint64_t total_bytes() const { return slot_bytes * slots * qps; }
  [[nodiscard]] uint64_t offset_of(uint32_t qp, uint32_t slot) const {
    return (uint64_t{qp} * slots + slot) * slot_bytes;
  }
};

/// Anonymous memory, registered pinned or on demand.
class Buffer {
 public:
  Buffer(const Protection& protection, uint64_t bytes, RegionKind kind);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] uint8_t* data() const { return data_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint32_t lkey() const { return mr_->lkey; }
  [[nodiscard]] uint32_t rkey() const { return mr_->rkey; }
  /// Returns the region's counters by faultline_query_mr_counters.
  [[nodiscard]] std::map<std::string, uint64_t> counters() const;
  void touch() const;     ///< makes every page present
  void drop() const;      ///< returns every page to the kernel (MADV_DONTNEED)
  void prefetch() const;  ///< ibv_advise_mr, synchronous

 private:
  const Protection& protection_;
  uint64_t bytes_;
  uint8_t* data_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

/// QP parameters that the two sides exchange.
struct Endpoint {
  uint32_t qpn = 0;
  uint32_t psn = 0;
};

/// One CQ and `count` QPs that use it.
class QpSet {
 public:
  QpSet(const Protection& protection, ibv_qp_type type, uint32_t count, uint32_t send_depth,
        uint32_t receive_depth, uint8_t reads_under_way);
  ~QpSet();
  QpSet(const QpSet&) = delete;
  QpSet& operator=(const QpSet&) = delete;

  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(qps_.size()); }
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  [[nodiscard]] ibv_qp* qp(uint32_t index) const { return qps_[index]; }
  [[nodiscard]] ibv_ah* ah() const { return ah_; }
  [[nodiscard]] uint32_t inline_bytes() const { return inline_bytes_; }
  [[nodiscard]] uint32_t remote_qpn(uint32_t index) const { return remote_[index].qpn; }
  [[nodiscard]] const ibv_gid& remote_gid() const { return remote_gid_; }
  [[nodiscard]] const std::vector<Endpoint>& endpoints() const { return local_; }
  void connect(const std::vector<Endpoint>& remote, const ibv_gid& remote_gid, uint32_t mtu_bytes,
               uint8_t ack_timeout);

  static constexpr uint32_t kQkey = 0x11111111;

 private:
  const Protection& protection_;
  ibv_qp_type type_;
  uint8_t reads_under_way_;
  ibv_cq* cq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  uint32_t inline_bytes_ = 0;
  std::vector<ibv_qp*> qps_;
  std::vector<Endpoint> local_;
  std::vector<Endpoint> remote_;
  ibv_gid remote_gid_{};
};

[[nodiscard]] nlohmann::json to_json(const std::vector<Endpoint>& endpoints);
[[nodiscard]] std::vector<Endpoint> endpoints_from(const nlohmann::json& list);
[[nodiscard]] nlohmann::json to_json(const ibv_gid& gid);
[[nodiscard]] ibv_gid gid_from(const nlohmann::json& text);

}  // namespace faultline::perf
