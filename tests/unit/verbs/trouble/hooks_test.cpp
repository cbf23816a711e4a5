// SPDX-License-Identifier: BSD-3-Clause
// Each function of verbs that programs call is one of a scenario's calls, or is named here as one that fails
// on no device. So a new function is not forgotten.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "stack/trouble/calls.hpp"

namespace faultline::verbs::hooks_test {
namespace {

/// Functions that only name, convert or acknowledge, or whose feature the stack lacks.
const std::set<std::string> kNeverFail{
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_event_type_str",
    "ibv_fork_init",
    "ibv_free_device_list",
    "ibv_get_device_guid",
    "ibv_get_device_index",
    "ibv_get_device_name",
    "ibv_get_srq_num",
    "ibv_is_fork_initialized",
    "ibv_node_type_str",
    "ibv_port_state_str",
    "ibv_qp_to_qp_ex",
    "ibv_query_ece",
    "ibv_rate_to_mbps",
    "ibv_query_qp_data_in_order",
    "ibv_rate_to_mult",
    "ibv_set_ece",
    "ibv_unimport_dm",
    "ibv_unimport_mr",
    "ibv_unimport_pd",
    "ibv_wc_status_str",
    "ibv_free_buf",
    "_ibv_query_comp_cntr_caps",
    "ibv_inc_comp_cntr",
    "ibv_inc_err_comp_cntr",
    "ibv_read_comp_cntr",
    "ibv_read_err_comp_cntr",
    "ibv_set_comp_cntr",
    "ibv_set_err_comp_cntr",
    "ibv_export_buf_dmabuf_fd",
    "ibv_dm_export_dmabuf_fd",
};

/// Functions whose call has another's name.
const std::map<std::string, std::string> kCallOf{
    {"_ibv_query_gid_ex", "ibv_query_gid"},
    {"_ibv_query_gid_table", "ibv_query_gid"},
    {"ibv_create_ah_from_wc", "ibv_create_ah"},
    {"ibv_create_cq_ex", "ibv_create_cq"},
    {"ibv_create_qp_ex", "ibv_create_qp"},
    {"ibv_create_srq_ex", "ibv_create_srq"},
    {"ibv_get_pkey_index", "ibv_query_pkey"},
    {"ibv_query_device_ex", "ibv_query_device"},
    {"ibv_query_port_speed", "ibv_query_port"},
    {"ibv_reg_buf_mr", "ibv_reg_mr"},
    {"ibv_reg_dm_mr", "ibv_reg_mr"},
    {"ibv_reg_dmabuf_mr", "ibv_reg_mr"},
    {"ibv_reg_mr_ex", "ibv_reg_mr"},
    {"ibv_reg_mr_iova", "ibv_reg_mr"},
    {"ibv_reg_mr_iova2", "ibv_reg_mr"},
};

/// Calls that are members of an object, not functions.
const std::set<std::string> kMembers{"ibv_start_poll", "ibv_wr_complete", "ibv_memcpy_to_dm",
                                     "ibv_memcpy_from_dm"};

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void add(std::set<std::string>& names, const std::string& text, const char* pattern,
         const std::string& before) {
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at)
    names.insert(before + (*at)[1].str());
}

/// Exported functions, and those that the header's inline functions call through the context.
std::set<std::string> functions() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::recursive_directory_iterator(FAULTLINE_VERBS)) {
    if (file.path().extension() != ".cpp") continue;
    const std::string text = read(file.path());
    add(names, text, R"(FAULTLINE_VERB[^(;]*\b(_?ibv_\w+)\()", "");
    add(names, text, R"((?:opened\.ops\.|context->)(\w+) = (?:in_trouble \? \w+ : )?\1;)", "ibv_");
  }
  return names;
}

TEST(Hooks, EachFunctionIsACallOfScenarios) {
  const std::set<std::string> all = functions();
  ASSERT_GT(all.size(), 80U);
  ASSERT_TRUE(all.contains("ibv_poll_cq") && all.contains("ibv_create_qp_ex") && all.contains("ibv_bind_mw"));
  std::set<std::string> calls = kMembers;
  for (const std::string& function : all) {
    if (kNeverFail.contains(function)) continue;
    const auto other = kCallOf.find(function);
    calls.insert(other == kCallOf.end() ? function : other->second);
  }
  const auto known = trouble::verbs_calls();
  EXPECT_EQ(calls, std::set<std::string>(known.begin(), known.end()))
      << "a new function of verbs asks trouble_of(), or stands in kNeverFail";
}

}  // namespace
}  // namespace faultline::verbs::hooks_test
