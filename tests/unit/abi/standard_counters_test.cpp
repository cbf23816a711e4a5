// SPDX-License-Identifier: BSD-3-Clause
// The names that tools read in sysfs, and which counters each is the sum of.
#include "stack/abi/tree/standard_counters.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "stack/verbs/objects/counter_list.hpp"

namespace faultline::abi {
namespace {

/// All counters are 0, but for those of `changed`.
std::vector<NamedCounter> values_with(std::initializer_list<std::pair<std::string_view, uint64_t>> changed) {
  std::vector<NamedCounter> counters;
  for (const auto& text : verbs::counter_texts()) counters.push_back({text.name, 0});
  for (const auto& [name, value] : changed) {
    const auto at = std::ranges::find(counters, name, &NamedCounter::name);
    if (at == counters.end())
      ADD_FAILURE() << "no counter " << name;
    else
      at->value = value;
  }
  return counters;
}

uint64_t value_of(const std::vector<CounterFile>& files, std::string_view name) {
  for (const CounterFile& file : files)
    if (file.file == name) return file.value;
  ADD_FAILURE() << "no file " << name;
  return 0;
}

TEST(StandardCounters, NameCountersThatExist) {
  const auto& texts = verbs::counter_texts();
  for (const StandardCounter& counter : standard_counters()) {
    std::string_view rest = counter.sources;
    while (!rest.empty()) {
      const std::string_view source = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), source.size() + 1));
      EXPECT_TRUE(std::any_of(texts.begin(), texts.end(),
                              [&](const auto& text) {
                                return source.ends_with('.') ? text.name.starts_with(source)
                                                             : text.name == source;
                              }))
          << counter.file << ": " << source;
    }
  }
}

TEST(StandardCounters, HaveOneFileANameAndOneForEachCounter) {
  const std::vector<CounterFile> files = counter_files(values_with({}));
  std::set<std::string> names;
  for (const CounterFile& file : files) {
    EXPECT_TRUE(names.insert(file.file).second) << file.file;
    EXPECT_EQ(file.value, 0U);
    EXPECT_TRUE(file.file.starts_with("counters/") || file.file.starts_with("hw_counters/")) << file.file;
    EXPECT_EQ(std::count(file.file.begin(), file.file.end(), '/'), 1) << file.file;
  }
  EXPECT_EQ(files.size(), standard_counters().size() + verbs::counter_texts().size());
}

// IBA vol. 1, 16.1.3.5: PortXmitData and PortRcvData count octets divided by 4.
TEST(StandardCounters, CountDataInWordsOfFourBytes) {
  const auto files = counter_files(values_with({{"transport.tx_bytes", 4096}, {"transport.rx_bytes", 103}}));
  EXPECT_EQ(value_of(files, "counters/port_xmit_data"), 1024U);
  EXPECT_EQ(value_of(files, "counters/port_rcv_data"), 25U);
  EXPECT_EQ(value_of(files, "hw_counters/transport.tx_bytes"), 4096U);
}

TEST(StandardCounters, SumTheirSources) {
  const auto files = counter_files(values_with({{"port.tx_dropped", 3},
                                                {"port.tx_too_long", 4},
                                                {"parse.runt", 10},
                                                {"parse.icrc", 20},
                                                {"transport.sequence_naks_received", 7}}));
  EXPECT_EQ(value_of(files, "counters/port_xmit_discards"), 7U);
  EXPECT_EQ(value_of(files, "counters/port_rcv_errors"), 30U);
  EXPECT_EQ(value_of(files, "hw_counters/rx_icrc_encapsulated"), 20U);
  EXPECT_EQ(value_of(files, "hw_counters/packet_seq_err"), 7U);
  EXPECT_EQ(value_of(files, "hw_counters/rcvd_seq_err"), 7U);
  EXPECT_EQ(value_of(files, "counters/port_xmit_packets"), 0U);
}

}  // namespace
}  // namespace faultline::abi
