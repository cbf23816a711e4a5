// SPDX-License-Identifier: BSD-3-Clause
#include "pmd_glue/ports/rss_table.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <rte_ethdev.h>

namespace faultline::glue {
namespace {

using Groups = std::vector<rte_eth_rss_reta_entry64>;

/// Returns groups that name all entries. gve's tables have 128 entries, mlx5's as few as one.
Groups groups_of(size_t entry_count) {
  Groups groups((entry_count + RTE_ETH_RETA_GROUP_SIZE - 1) / RTE_ETH_RETA_GROUP_SIZE);
  for (size_t i = 0; i < entry_count; ++i)
    groups[i / RTE_ETH_RETA_GROUP_SIZE].mask |= uint64_t{1} << (i % RTE_ETH_RETA_GROUP_SIZE);
  return groups;
}

}  // namespace

std::optional<RssTable> RssTable::read(uint16_t port, uint16_t entry_count, uint8_t key_bytes) {
  if (entry_count == 0) return std::nullopt;
  Groups groups = groups_of(entry_count);
  if (rte_eth_dev_rss_reta_query(port, groups.data(), entry_count) != 0) return std::nullopt;
  std::vector<uint16_t> queues(entry_count);
  for (size_t i = 0; i < entry_count; ++i)
    queues[i] = groups[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
  RssTable table(port, std::move(queues));
  table.read_hash(key_bytes);
  return table;
}

void RssTable::read_hash(uint8_t key_bytes) {
  // Some PMDs copy their key's length, whatever the caller's.
  std::array<uint8_t, UINT8_MAX> room{};
  rte_eth_rss_conf conf{};
  conf.rss_key = room.data();
  conf.rss_key_len = key_bytes;
  if (rte_eth_dev_rss_hash_conf_get(port_, &conf) != 0) return;
  hashes_ports_ = (conf.rss_hf & RTE_ETH_RSS_UDP) != 0;
  if (std::ranges::any_of(room, [](uint8_t byte) { return byte != 0; }))
    key_.assign(room.begin(), room.begin() + key_bytes);
}

int RssTable::point(size_t entry, uint16_t queue) {
  Groups groups((queues_.size() + RTE_ETH_RETA_GROUP_SIZE - 1) / RTE_ETH_RETA_GROUP_SIZE);
  rte_eth_rss_reta_entry64& group = groups[entry / RTE_ETH_RETA_GROUP_SIZE];
  group.mask = uint64_t{1} << (entry % RTE_ETH_RETA_GROUP_SIZE);
  group.reta[entry % RTE_ETH_RETA_GROUP_SIZE] = queue;
  const int result = rte_eth_dev_rss_reta_update(port_, groups.data(), static_cast<uint16_t>(queues_.size()));
  if (result == 0) queues_[entry] = queue;
  return result;
}

bool RssTable::is_spread_over(uint16_t queue_count) const {
  const auto share = static_cast<std::ptrdiff_t>(queues_.size() / queue_count);
  for (uint16_t queue = 0; queue < queue_count; ++queue)
    if (std::ranges::count(queues_, queue) < share) return false;
  return true;
}

int RssTable::spread_over(uint16_t queue_count) {
  for (size_t i = 0; i < queues_.size(); ++i) queues_[i] = static_cast<uint16_t>(i % queue_count);
  return write();
}

int RssTable::write() const {
  Groups groups = groups_of(queues_.size());
  for (size_t i = 0; i < queues_.size(); ++i)
    groups[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] = queues_[i];
  return rte_eth_dev_rss_reta_update(port_, groups.data(), static_cast<uint16_t>(queues_.size()));
}

}  // namespace faultline::glue
