// SPDX-License-Identifier: BSD-3-Clause
// The file that describes a fabric: what its keys mean, and the line for each mistake.
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "apps/sim/description/read_description.hpp"

namespace faultline::fabric {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("fabric-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  Description read(const std::string& text) { return read_description(write("f.toml", text)); }
  /// Returns the error without the folder's name; "" if there is none.
  std::string error_of(const std::string& text) {
    try {
      static_cast<void>(read(text));
      return "";
    } catch (const DescriptionError& error) {
      std::string line = error.what();
      const std::string folder = folder_.string() + "/";
      if (const size_t at = line.find(folder); at != std::string::npos) line.erase(at, folder.size());
      EXPECT_EQ(line.find('\n'), std::string::npos);
      return line;
    }
  }

  std::filesystem::path folder_;
};

const std::string kLeafSpine =
    "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 4\n";
const std::string kTraffic = "[traffic]\npattern = \"permutation\"\n";

TEST_F(Files, GiveDefaultsToWhatIsLeftOut) {
  const Description read_one = read(kLeafSpine + kTraffic);
  EXPECT_EQ(read_one.seed, 1U);
  EXPECT_EQ(read_one.duration_ns, 10'000'000U);
  EXPECT_EQ(read_one.topology.hosts, 8U);
  EXPECT_EQ(read_one.topology.links[0].bits_per_s, 10'000'000'000U);
  EXPECT_FALSE(read_one.switches.marks);
  EXPECT_FALSE(read_one.switches.pauses);
  EXPECT_EQ(read_one.congestion.algorithm, transport::CongestionAlgorithm::none);
  EXPECT_EQ(read_one.congestion.dcqcn.line_bytes_per_s, 1'250'000'000U);
  EXPECT_EQ(read_one.traffic.operation, Operation::write);
  EXPECT_EQ(read_one.traffic.hosts, 8U);
}

TEST_F(Files, SetEveryKey) {
  const Description all = read(R"(
seed = 7
duration_ns = 123
sample_ns = 5
[topology]
kind = "list"
hosts = ["a", "b"]
switches = ["s", "t"]
[[link]]
from = "a"
to = "s"
gbps = 25
delay_ns = 11
[[link]]
from = "s"
to = "t"
gbps = 0.5
[[link]]
from = "b"
to = "t"
[[failure]]
from = "t"
to = "s"
down_ns = 10
up_ns = 20
[switch]
queue_bytes = 100_001
buffer_bytes = 200_001
kmin_bytes = 1
kmax_bytes = 2
pmax = 0.5
pause_on_bytes = 4
pause_off_bytes = 3
reroute_ns = 9
[host]
mtu = 4096
nic_frames = 3
turn_ns = 500
window_packets = 64
timeout = 10
retry_count = 3
selective_ack = false
[congestion]
algorithm = "swift"
cnp_interval_us = 7
[congestion.dcqcn]
gain_divisor = 128
alpha_timer_us = 1
increase_timer_us = 2
increase_bytes = 3
fast_recovery_rounds = 4
additive_mbit_per_s = 8
hyper_mbit_per_s = 16
min_mbit_per_s = 24
line_mbit_per_s = 32
[congestion.swift]
target_delay_us = 30
scaling_range_us = 0
initial_window_packets = 2
max_window_packets = 3
additive_packets = 0.5
min_mbit_per_s = 8
beta_percent = 50
max_decrease_percent = 40
[traffic]
pattern = "incast"
operation = "read"
hosts = 2
connections = 3
message_bytes = 1000
outstanding = 4
messages = 5
spread_ns = 6
senders = 1
receiver = "b"
)");
  EXPECT_EQ(all.seed, 7U);
  EXPECT_EQ(all.duration_ns, 123U);
  EXPECT_EQ(all.sample_ns, 5U);
  ASSERT_EQ(all.topology.links.size(), 3U);
  EXPECT_EQ(all.topology.links[0], (Link{.a = 0, .b = 2, .bits_per_s = 25'000'000'000, .delay_ns = 11}));
  EXPECT_EQ(all.topology.links[1], (Link{.a = 2, .b = 3, .bits_per_s = 500'000'000, .delay_ns = 1000}));
  ASSERT_EQ(all.failures.size(), 1U);
  EXPECT_EQ(all.failures[0].link, 1U);
  EXPECT_EQ(all.failures[0].down_ns, 10U);
  EXPECT_EQ(all.failures[0].up_ns, 20U);
  EXPECT_EQ(all.switches.queue_bytes, 100'001U);
  EXPECT_EQ(all.switches.buffer_bytes, 200'001U);
  EXPECT_TRUE(all.switches.marks);
  EXPECT_EQ(all.switches.kmin_bytes, 1U);
  EXPECT_EQ(all.switches.kmax_bytes, 2U);
  EXPECT_DOUBLE_EQ(all.switches.pmax, 0.5);
  EXPECT_TRUE(all.switches.pauses);
  EXPECT_EQ(all.switches.pause_on_bytes, 4U);
  EXPECT_EQ(all.switches.pause_off_bytes, 3U);
  EXPECT_EQ(all.switches.reroute_ns, 9U);
  EXPECT_EQ(all.host.mtu, transport::PathMtu::mtu4096);
  EXPECT_EQ(all.host.nic_frames, 3U);
  EXPECT_EQ(all.host.turn_ns, 500U);
  EXPECT_EQ(all.host.window_packets, 64U);
  EXPECT_EQ(all.host.timeout, 10);
  EXPECT_EQ(all.host.retry_count, 3);
  EXPECT_FALSE(all.host.selective_ack);
  EXPECT_EQ(all.congestion.algorithm, transport::CongestionAlgorithm::swift);
  EXPECT_EQ(all.congestion.cnp_interval_ns, 7'000U);
  EXPECT_DOUBLE_EQ(all.congestion.dcqcn.gain, 1.0 / 128);
  EXPECT_EQ(all.congestion.dcqcn.alpha_timer_ns, 1'000U);
  EXPECT_EQ(all.congestion.dcqcn.increase_timer_ns, 2'000U);
  EXPECT_EQ(all.congestion.dcqcn.increase_bytes, 3U);
  EXPECT_EQ(all.congestion.dcqcn.fast_recovery_rounds, 4U);
  EXPECT_EQ(all.congestion.dcqcn.additive_bytes_per_s, 1'000'000U);
  EXPECT_EQ(all.congestion.dcqcn.hyper_bytes_per_s, 2'000'000U);
  EXPECT_EQ(all.congestion.dcqcn.min_bytes_per_s, 3'000'000U);
  EXPECT_EQ(all.congestion.dcqcn.line_bytes_per_s, 4'000'000U);
  EXPECT_EQ(all.congestion.swift.target_delay_ns, 30'000U);
  EXPECT_EQ(all.congestion.swift.scaling_range_ns, 0U);
  EXPECT_DOUBLE_EQ(all.congestion.swift.initial_window_packets, 2);
  EXPECT_DOUBLE_EQ(all.congestion.swift.max_window_packets, 3);
  EXPECT_DOUBLE_EQ(all.congestion.swift.additive_packets, 0.5);
  EXPECT_EQ(all.congestion.swift.min_bytes_per_s, 1'000'000U);
  EXPECT_DOUBLE_EQ(all.congestion.swift.beta, 0.5);
  EXPECT_DOUBLE_EQ(all.congestion.swift.max_decrease, 0.4);
  EXPECT_EQ(all.traffic.pattern, PatternKind::incast);
  EXPECT_EQ(all.traffic.operation, Operation::read);
  EXPECT_EQ(all.traffic.connections, 3U);
  EXPECT_EQ(all.traffic.message_bytes, 1000U);
  EXPECT_EQ(all.traffic.outstanding, 4U);
  EXPECT_EQ(all.traffic.messages, 5U);
  EXPECT_EQ(all.traffic.spread_ns, 6U);
  EXPECT_EQ(all.traffic.senders, 1U);
  EXPECT_EQ(all.traffic.receiver, 1U);
}

TEST_F(Files, NameTheLineAndTheKeyOfAMistake) {
  const auto starts = [&](const std::string& text, const std::string& begin) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with("faultline-sim: f.toml:" + begin)) << error;
  };
  starts("", "1: topology: is missing");
  starts("[topology]\n", "1: topology.kind: is missing");
  starts("[topology]\nkind = \"torus\"\n",
         "2: topology.kind: \"torus\" is not one of leaf-spine, fat-tree, list");
  starts("[topology]\nkind = \"fat-tree\"\nk = 5\n", "3: topology.k: must be even");
  starts("[topology]\nkind = \"fat-tree\"\nk = 16\nleaves = 2\n" + kTraffic,
         "4: topology.leaves: unknown key; known here: ");
  starts(kLeafSpine, "1: traffic.pattern: is missing");
  starts(kLeafSpine + kTraffic + "message_byte = 3\n", "8: traffic.message_byte: unknown key; known here: ");
  starts(kLeafSpine + kTraffic + "senders = 3\n", "8: traffic.senders: unknown key; known here: ");
  starts(kLeafSpine + kTraffic + "message_bytes = 0\n", "8: traffic.message_bytes: must be a whole number");
  starts(kLeafSpine + "[traffic]\npattern = \"incast\"\nsenders = 8\n",
         "8: traffic.senders: must be a whole number from 1 to 7");
  starts(kLeafSpine + "[traffic]\npattern = \"incast\"\nreceiver = \"h8\"\n",
         "8: traffic.receiver: \"h8\" is none");
  starts(kLeafSpine + "[traffic]\npattern = \"ring-allreduce\"\noperation = \"read\"\n",
         "8: traffic.operation: must be write_imm");
  starts(kLeafSpine + kTraffic + "[switch]\nkmin_bytes = 10\n", "8: switch.kmax_bytes: is missing");
  starts(kLeafSpine + kTraffic + "[switch]\nkmin_bytes = 10\nkmax_bytes = 9\npmax = 1\n",
         "10: switch.kmax_bytes: is below");
  starts(kLeafSpine + kTraffic + "[switch]\npause_on_bytes = 10\npause_off_bytes = 10\n",
         "10: switch.pause_off_bytes: must be below");
  starts(kLeafSpine + kTraffic + "[switch]\npmax = 1.5\n", "9: switch.pmax: must be a ratio from 0 to 1");
  starts(kLeafSpine + kTraffic + "[host]\nmtu = 1500\n", "9: host.mtu: must be 256");
  starts(kLeafSpine + kTraffic + "[congestion]\nalgorithm = \"timely\"\n",
         "9: congestion.algorithm: \"timely\"");
  starts(kLeafSpine + kTraffic + "[congestion.swift]\nbeta = 1\n",
         "9: congestion.swift.beta: unknown key; known here: ");
  starts(kLeafSpine + kTraffic + "[[failure]]\nfrom = \"h0\"\nto = \"h1\"\ndown_ns = 1\n",
         "10: failure.to: no link");
  starts(kLeafSpine + kTraffic + "[[failure]]\nfrom = \"x\"\n", "9: failure.from: \"x\" is neither");
  starts(kLeafSpine + kTraffic + "[[link]]\nfrom = \"x\"\n", "8: link: is for a topology of kind list");
  starts("sed = 1\n" + kLeafSpine + kTraffic, "1: sed: unknown key; known here: ");
  starts("seed = \n", "1: ");
}

TEST_F(Files, RefuseListsThatAreNoFabric) {
  const auto list = [](const std::string& hosts, const std::string& links) {
    return "[topology]\nkind = \"list\"\nhosts = [" + hosts + "]\nswitches = [\"s\"]\n" + links + kTraffic;
  };
  const std::string a = "[[link]]\nfrom = \"a\"\nto = \"s\"\n", b = "[[link]]\nfrom = \"b\"\nto = \"s\"\n";
  EXPECT_EQ(error_of(list("\"a\", \"b\"", a + b)), "");
  EXPECT_NE(error_of(list("\"a\", \"a\"", a + b)).find("\"a\" is named twice"), std::string::npos);
  EXPECT_NE(error_of(list("\"a\", \"b\"", a)).find("host \"b\" has 0 links"), std::string::npos);
  EXPECT_NE(error_of(list("\"a\", \"b\"", a + b + b)).find("host \"b\" has 2 links"), std::string::npos);
  EXPECT_NE(error_of(list("\"a\", \"b,c\"", a)).find("is no name"), std::string::npos);
  EXPECT_NE(
      error_of(list("\"a\", \"b\"", a + "[[link]]\nfrom = \"b\"\nto = \"b\"\n")).find("the node itself"),
      std::string::npos);
}

TEST_F(Files, ReadATraceBesideThem) {
  write("flows.csv", "# time_ns,source,destination,bytes\n200,h1,h0,5\n100, h0, h7, 1000\n");
  const Description read_one = read(kLeafSpine + "[traffic]\npattern = \"trace\"\ntrace = \"flows.csv\"\n");
  ASSERT_EQ(read_one.traffic.trace.size(), 2U);
  EXPECT_EQ(read_one.traffic.trace[0].start_ns, 100U);
  EXPECT_EQ(read_one.traffic.trace[0].destination, 7U);
  EXPECT_EQ(read_one.traffic.trace[1].bytes, 5U);
}

TEST_F(Files, NameTheLineOfAMistakeInATrace) {
  const auto error = [&](const std::string& row) {
    write("flows.csv", "100,h0,h1,1\n" + row + "\n");
    return error_of(kLeafSpine + "[traffic]\npattern = \"trace\"\ntrace = \"flows.csv\"\n");
  };
  EXPECT_EQ(error("1,h0,h9,1"), "faultline-sim: flows.csv:2: \"h9\" is not a host");
  EXPECT_EQ(error("1,h0,h0,1"), "faultline-sim: flows.csv:2: source and destination are the same host");
  EXPECT_NE(error("x,h0,h1,1").find("flows.csv:2: time_ns"), std::string::npos);
  EXPECT_NE(error("1,h0,h1,0").find("flows.csv:2: bytes"), std::string::npos);
  EXPECT_NE(error("1,h0,h1,5,6").find("flows.csv:2: has more than four fields"), std::string::npos);
  EXPECT_NE(error_of(kLeafSpine + "[traffic]\npattern = \"trace\"\ntrace = \"none.csv\"\n")
                .find("none.csv: No such file"),
            std::string::npos);
}

}  // namespace
}  // namespace faultline::fabric
