// SPDX-License-Identifier: BSD-3-Clause
// Scenario files: each mistake is one line that names file, line, key and what is expected.
#include "pmd_glue/trouble/scenario_file.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "pmd_glue/config/config.hpp"
#include "stack/trouble/journal.hpp"
#include "stack/wire/mad/mad_cm.hpp"

namespace faultline::glue {
namespace {

struct Mistake {
  const char* name;
  const char* toml;
  const char* line;
};

const Mistake kMistakes[] = {
    {"NoRule", "seed = 1\n", "faultline: t.toml:1: has no [[rule]]"},
    {"UnknownKey", "sed = 1\n", "t.toml:1: sed: unknown key; known here: name, seed, illegal, rule"},
    {"Syntax", "seed = \n", "t.toml:1: "},
    {"NoWhen", "[[rule]]\ndo = { errno = \"EIO\" }\n", "t.toml:1: rule: needs when, a table"},
    {"NoDo", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\n", "rule: needs do, a table"},
    {"EmptyWhen", "[[rule]]\nwhen = { }\ndo = { errno = \"EIO\" }\n", "t.toml:2: rule.when: is empty"},
    {"TwoEvents", "[[rule]]\nwhen = { call = \"ibv_reg_mr\", send = \"*\" }\ndo = { errno = \"EIO\" }\n",
     "a table names one event; use any or all"},
    {"FilterWithoutEvent", "[[rule]]\nwhen = { nth = 3 }\ndo = { link = \"down\", for_ms = 1 }\n",
     "t.toml:2: rule.when.nth: needs an event in the same table"},
    {"PacketWithoutDirection", "[[rule]]\nwhen = { packet = \"RC.SEND_ONLY\" }\ndo = { packet = \"lose\" }\n",
     "must be \"in OPCODE\" or \"out OPCODE\""},
    {"UnknownErrno", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { errno = \"EFOO\" }\n",
     "t.toml:3: rule.do.\"EFOO\" is unknown; known here: EPERM"},
    {"UnknownDo", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { explode = \"now\" }\n",
     "do.explode: unknown key; known here: errno, status, packet, inject, memory, fault"},
    {"UnknownWord", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"eat\" }\n",
     "do.packet: \"eat\" is unknown; known here: \"lose\", \"duplicate\", \"corrupt\", \"mark\", \"delay\""},
    {"DelayWithoutTime", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"delay\" }\n",
     "do.needs delay_us"},
    {"TimeWithoutUse", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"lose\", delay_us = 3 }\n",
     "do.delay_us: this action does not take it"},
    {"ReorderWithoutCount", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"reorder\" }\n",
     "do.needs by"},
    {"ReorderByNone", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"reorder\", by = 0 }\n",
     "do.by: from 1 to 10000"},
    {"RateWithoutRate", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"rate\" }\n",
     "do.needs bits_per_second"},
    {"UnknownFlow",
     "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"partition\", for_ms = 1, flow = \"x\" }\n",
     "do.flow: known here: \"qp\", \"peer\", \"port\""},
    {"FlowOfALoss", "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"lose\", flow = \"qp\" }\n",
     "do.flow: this action does not take it"},
    {"NakWithoutSyndrome", "[[rule]]\nwhen = { packet = \"out *\" }\ndo = { inject = \"nak\" }\n",
     "do.needs syndrome"},
    {"UnknownSyndrome",
     "[[rule]]\nwhen = { packet = \"out *\" }\ndo = { inject = \"nak\", syndrome = \"x\" }\n",
     "do.syndrome: known here: \"psn_sequence\", \"invalid_request\", \"remote_access\", "
     "\"remote_operational\""},
    {"TimerTooLong", "[[rule]]\nwhen = { packet = \"out *\" }\ndo = { inject = \"rnr\", timer = 32 }\n",
     "do.timer: from 0 to 31"},
    {"PageOutAtAPoll", "[[rule]]\nwhen = { poll = \"*\" }\ndo = { memory = \"page_out\" }\n",
     "rule 1: never acts: page_out needs a fault, a packet, a send or a receive"},
    {"RightIcrcIsIllegal",
     "[[rule]]\nwhen = { packet = \"in *\" }\ndo = { packet = \"corrupt\", icrc = \"right\" }\n",
     "a real device finds a changed payload by the ICRC; illegal = true allows it"},
    {"PeerOfASend", "[[rule]]\nwhen = { send = \"*\", peer = \"198.18.0.1\" }\ndo = { qp = \"error\" }\n",
     "t.toml:2: rule.when.peer: needs `packet` in the same table"},
    {"PeerIsNoAddress",
     "[[rule]]\nwhen = { packet = \"in *\", peer = \"host\" }\ndo = { packet = \"lose\" }\n",
     "t.toml:2: rule.when.peer: \"host\" is no IP address"},
    {"LeastWithoutCounter", "[[rule]]\nwhen = { send = \"*\", least = 2 }\ndo = { qp = \"error\" }\n",
     "t.toml:2: rule.when.least: needs `counter` in the same table"},
    {"UnknownComponent", "[[rule]]\nwhen = { counter = \"cm.sent\" }\ndo = { qp = \"error\" }\n",
     "t.toml:2: rule.when.counter: \"cm.sent\": must begin with one of odp., transport."},
    {"NeverActs", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { packet = \"lose\" }\n",
     "rule 1: never acts"},
    {"Illegal", "[[rule]]\nwhen = { call = \"ibv_destroy_qp\" }\ndo = { errno = \"EIO\" }\n",
     "a call that releases an object does not fail on a real device; illegal = true allows it"},
    {"UnknownAfter", "[[rule]]\nwhen = { call = \"ibv_reg_mr\", after = \"x\" }\ndo = { errno = \"EIO\" }\n",
     "after and before: no rule has the name \"x\""},
    {"Probability", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { errno = \"EIO\" }\nprobability = 2\n",
     "t.toml:4: rule.probability: must be a ratio from 0 to 1, such as 0.01"},
    {"NeverLikely", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { errno = \"EIO\" }\nprobability = 0\n",
     "t.toml:4: rule.probability: must be more than 0, at most 1"},
    {"UnknownFilter", "[[rule]]\nwhen = { cal = \"ibv_reg_mr\" }\ndo = { errno = \"EIO\" }\n",
     "t.toml:2: rule.when.cal: unknown key; known here: call, send"},
    {"PartsAreNoTables", "[[rule]]\nwhen = { any = [3] }\ndo = { errno = \"EIO\" }\n",
     "t.toml:2: rule.when.any: must be written as [[rule.when.any]]"},
    {"PartOfParts", "[[rule]]\nwhen = { any = [{ nth = 3 }] }\ndo = { errno = \"EIO\" }\n",
     "t.toml:2: rule.when.any.nth: needs an event in the same table"},
    {"NeitherTextNorNumber", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { errno = [] }\n",
     "t.toml:3: rule.do.errno: must be a string in quotes or a whole number"},
    {"NoRules", "rule = 3\n", "t.toml:1: rule: must be written as [[rule]]"},
    {"AtWithoutObject", "[[rule]]\nwhen = { at = \"poll\", n = 1 }\ndo = { poll = \"nothing\" }\n",
     "`at` needs object and n"},
    {"UnknownCall", "[[rule]]\nwhen = { call = \"ibv_reg_mrs\" }\ndo = { errno = \"EIO\" }\n",
     "t.toml:2: rule.when.call: \"ibv_reg_mrs\" is unknown"},
    {"UnknownEvent", "[[rule]]\nwhen = { event = \"IBV_EVENT_X\" }\ndo = { link = \"up\" }\n",
     "event: \"IBV_EVENT_X\" is unknown"},
    {"UnknownCmEvent", "[[rule]]\nwhen = { cm_event = \"RDMA_CM_EVENT_X*\" }\ndo = { link = \"up\" }\n",
     "cm_event: \"RDMA_CM_EVENT_X*\" is unknown"},
    {"StatusOfNoReceive",
     "[[rule]]\nwhen = { receive = \"*\" }\ndo = { status = \"IBV_WC_RETRY_EXC_ERR\" }\n",
     "rule 1: status: not one of a receive"},
    {"StatusOfBoth",
     "[[rule]]\nwhen = { any = [ { receive = \"*\" }, { send = \"*\" } ] }\n"
     "do = { status = \"IBV_WC_LOC_LEN_ERR\" }\n",
     "status: of sends or of receives, not of both"},
    {"ThreadWithoutEvent", "[[rule]]\nwhen = { thread = 1 }\ndo = { link = \"up\" }\n",
     "thread: needs an event in the same table"},
    {"AbsentWhenNotListed", "[[rule]]\nwhen = { call = \"ibv_reg_mr\" }\ndo = { device = \"absent\" }\n",
     "rule 1: never acts"},
    {"CmEventAtAPoll",
     "[[rule]]\nwhen = { poll = \"*\" }\ndo = { cm_event = \"RDMA_CM_EVENT_ADDR_CHANGE\" }\n",
     "never acts: cm_event acts at calls of rdma_cm"},
    {"LateWakeWithoutTime", "[[rule]]\nwhen = { poll = \"*\" }\ndo = { wake = \"late\" }\n",
     "do.needs delay_us"},
    {"StatusAtNoReceive",
     "[[rule]]\nwhen = { at = \"receive\", object = \"d qp 0\", n = 1 }\n"
     "do = { status = \"IBV_WC_REM_OP_ERR\" }\n",
     "status: not one of a receive"},
    {"NotAText", "[[rule]]\nwhen = { call = 3 }\ndo = { errno = \"EIO\" }\n",
     "t.toml:2: rule.when.call: must be a string in quotes"},
    {"NotANumber", "[[rule]]\nwhen = { call = \"ibv_reg_mr\", nth = \"x\" }\ndo = { errno = \"EIO\" }\n",
     "nth: must be a whole number from 0"},
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreOneLine) {
  try {
    static_cast<void>(parse_scenario(GetParam().toml, "t.toml"));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(GetParam().line), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mistakes, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

TEST(ScenarioFile, WhatIsIllegalIsAllowedOnRequest) {
  const auto scenario = parse_scenario(
      "illegal = true\n[[rule]]\nwhen = { call = \"ibv_destroy_qp\" }\ndo = { errno = \"EIO\" }\n", "t.toml");
  EXPECT_EQ(scenario.rules.size(), 1U);
  EXPECT_EQ(scenario.rules[0].name, "rule 1");
  EXPECT_EQ(scenario.rules[0].times, 1U);
}

TEST(ScenarioFile, AMissingFileIsOneLine) {
  EXPECT_THROW(static_cast<void>(load_scenario("/nonexistent.toml")), ConfigError);
}

TEST(ScenarioFile, EachPresetIsRead) {
  size_t presets = 0;
  for (const auto& file : std::filesystem::directory_iterator(FAULTLINE_PRESETS)) {
    const trouble::Scenario scenario = load_scenario(file.path());
    EXPECT_EQ(scenario.name + ".toml", file.path().filename());
    ++presets;
  }
  EXPECT_GE(presets, 10U);
}

TEST(Journal, MistakesNameTheLine) {
  trouble::Scenario scenario;
  EXPECT_EQ(trouble::read_journal("", scenario), "is empty");
  EXPECT_EQ(trouble::read_journal("{\"a\":1}\n", scenario), "line 1: is no journal of version 1");
  EXPECT_EQ(trouble::read_journal("x\n", scenario), "line 1: is not a JSON object");
  const std::string header = trouble::header_line({}, "p") + "\n";
  EXPECT_EQ(trouble::read_journal(header + "{}\n", scenario), "line 2: needs \"rule\", a text");
  EXPECT_EQ(trouble::read_journal(
                header + R"({"rule":"r","event":"e","object":"o","n":1,"do":{"errno":"EFOO"}})", scenario)
                .substr(0, 24),
            "line 2: \"EFOO\" is unknow");
  EXPECT_EQ(trouble::read_journal(header, scenario), "");
}

TEST(ScenarioFile, ReasonsOfARejectionHaveTheNumbersOfTheirMessages) {
  using wire::RejectReason;
  const std::pair<const char*, RejectReason> reasons[] = {
      {"no_qp", RejectReason::no_qp},
      {"no_eec", RejectReason::no_eec},
      {"no_resources", RejectReason::no_resources},
      {"timeout", RejectReason::timeout},
      {"unsupported", RejectReason::unsupported},
      {"invalid_communication_id", RejectReason::invalid_communication_id},
      {"invalid_communication_instance", RejectReason::invalid_communication_instance},
      {"invalid_service_id", RejectReason::invalid_service_id},
      {"invalid_transport", RejectReason::invalid_transport},
      {"stale_connection", RejectReason::stale_connection},
      {"rdc_does_not_exist", RejectReason::rdc_does_not_exist},
      {"invalid_gid", RejectReason::invalid_gid},
      {"invalid_lid", RejectReason{13}},
      {"invalid_mtu", RejectReason::invalid_mtu},
      {"insufficient_responder_resources", RejectReason::insufficient_responder_resources},
      {"consumer", RejectReason::consumer_defined},
      {"vendor_option_not_supported", RejectReason{35}},
  };
  for (const auto& [name, reason] : reasons) {
    const trouble::Scenario scenario = parse_scenario(
        std::string("[[rule]]\nwhen = { request = \"*\" }\ndo = { reject = \"") + name + "\" }\n", "t.toml");
    ASSERT_EQ(scenario.rules.size(), 1U) << name;
    EXPECT_EQ(scenario.rules[0].action.number, static_cast<uint32_t>(reason)) << name;
  }
}

}  // namespace
}  // namespace faultline::glue
