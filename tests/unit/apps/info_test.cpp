// SPDX-License-Identifier: BSD-3-Clause
// The page of `faultline info`, of a made-up machine.
#include "apps/faultline/info.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/unit/apps/machine.hpp"

namespace faultline::cli::info_test {
namespace {

TEST(Info, HasSectionsOfValues) {
  const nlohmann::ordered_json info = info_of(whole_machine());
  for (const char* section : {"faultline", "machine", "limits", "guards", "device faultline0"}) {
    ASSERT_TRUE(info.contains(section)) << section;
    EXPECT_TRUE(info[section].is_object()) << section << ": " << info[section];
  }
  EXPECT_EQ(info["device faultline0"]["gids"], nlohmann::ordered_json({"198.18.0.1"}));
  EXPECT_EQ(info["limits"]["locked_bytes"], "unlimited");
  EXPECT_TRUE(info["faultline"]["port_kinds"].is_array());
  EXPECT_EQ(info["guards"]["pins"], "works: it works");
  EXPECT_FALSE(info.contains("error"));
}

TEST(Info, ADeviceThatDoesNotOpenHasItsLine) {
  Facts facts = whole_machine();
  facts.program.devices.front().error = "faultline: no";
  facts.program.error = "faultline: nothing";
  const nlohmann::ordered_json info = info_of(facts);
  EXPECT_EQ(info["device faultline0"]["error"], "faultline: no");
  EXPECT_EQ(info["error"]["devices"], "faultline: nothing");
}

TEST(Info, TheTextHasOneLineAValue) {
  const nlohmann::ordered_json info = info_of(whole_machine());
  size_t lines = info.size();
  for (const auto& [name, section] : info.items()) lines += section.size();
  const std::string text = info_text(info);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), lines) << text;
  EXPECT_NE(text.find("memory                    16 GiB\n"), std::string::npos) << text;
  EXPECT_NE(text.find("rdma devices              none\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace faultline::cli::info_test
