// SPDX-License-Identifier: BSD-3-Clause
// The table of checks of `faultline doctor`, on made-up machines.
#include "apps/faultline/checks.hpp"

#include <algorithm>
#include <cerrno>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/faultline/doctor.hpp"
#include "tests/unit/apps/machine.hpp"

namespace faultline::cli::checks_test {
namespace {

Finding find(const Facts& facts, std::string_view name) {
  for (const Check& check : checks())
    if (check.name == name) return check.find(facts);
  ADD_FAILURE() << "no check " << name;
  return {};
}

/// Returns the names of the checks that do not pass.
std::set<std::string_view> failures(const Facts& facts) {
  std::set<std::string_view> names;
  for (const Check& check : checks())
    if (check.find(facts).state != State::ok) names.insert(check.name);
  return names;
}

using Names = std::set<std::string_view>;

TEST(Checks, AllPassOnAWholeMachine) {
  EXPECT_EQ(failures(whole_machine()), Names{});
  EXPECT_TRUE(do_programs_run(whole_machine()));
}

TEST(Checks, HaveNamesOfTheirOwn) {
  Names names;
  for (const Check& check : checks()) EXPECT_TRUE(names.insert(check.name).second) << check.name;
  EXPECT_TRUE(names.contains(kDecidingCheck));
}

TEST(Checks, EachGuardOfTheLibraryHasOne) {
  for (const GuardReport& guard : whole_machine().program.guards) {
    const Facts facts = with_guard(guard.name, FAULTLINE_GUARD_MISSING, EPERM, "no guard: it is lost");
    EXPECT_EQ(failures(facts).size(), 1U) << guard.name;
    EXPECT_TRUE(do_programs_run(facts)) << guard.name;
  }
}

TEST(Checks, AFailedOneStatesReasonLossAndRemedyInOneLine) {
  Facts facts;  // nothing at all is known or there
  facts.program.error = "faultline: the probe: ended\nby a signal";
  for (const Check& check : checks()) {
    const Finding finding = check.find(facts);
    if (finding.state == State::ok) continue;
    EXPECT_NE(finding.lost, "") << check.name;
    EXPECT_NE(finding.mend, "") << check.name;
  }
  const std::string page = doctor_page(facts, false);
  EXPECT_EQ(static_cast<size_t>(std::count(page.begin(), page.end(), '\n')), checks().size() + 1);
}

TEST(Checks, WithoutTheLibraryProgramsDoNotRun) {
  Facts facts = whole_machine();
  facts.host.library.clear();
  facts.program = {};
  facts.program.error = "faultline: the probe: the library is nowhere";
  EXPECT_EQ(find(facts, "library").state, State::missing);
  EXPECT_EQ(find(facts, "program").state, State::missing);
  EXPECT_FALSE(do_programs_run(facts));
  EXPECT_TRUE(doctor_page(facts, false).ends_with("verbs programs do not run here\n"));
}

TEST(Checks, ADeviceThatDoesNotOpenIsReportedInItsOwnWords) {
  Facts facts = whole_machine();
  facts.program.devices.front().error = "faultline: wire w0: its switch accepts nobody";
  EXPECT_EQ(find(facts, "program").reason, "faultline: wire w0: its switch accepts nobody");
  EXPECT_FALSE(do_programs_run(facts));
}

TEST(Checks, AFailedTransferMeansThatProgramsDoNotRun) {
  Facts facts = whole_machine();
  facts.program.transfer = {.is_complete = false, .error = "ibv_reg_mr: Cannot allocate memory"};
  EXPECT_EQ(find(facts, "program").state, State::missing);
}

TEST(Checks, WithoutAWireTheHostsAddressIsAWay) {
  Facts facts = whole_machine();
  facts.program.devices.clear();
  facts.program.error = "faultline: cannot make the directory /tmp/faultline-1000: Read-only file system";
  facts.by_udp = whole_machine().program;
  EXPECT_EQ(find(facts, "program").state, State::limited);
  EXPECT_TRUE(do_programs_run(facts));
  facts.by_udp->devices.front().error = "faultline: another process has the address";
  EXPECT_FALSE(do_programs_run(facts));
}

TEST(Checks, APortThatIsDownIsALimit) {
  Facts facts = whole_machine();
  facts.program.devices.front().port_state = "down";
  facts.program.transfer = {};
  EXPECT_EQ(find(facts, "program").state, State::limited);
}

TEST(Checks, ClassicMemoryAloneIsALimit) {
  Facts facts = whole_machine();
  facts.program.transfer.on_demand_error = "ibv_reg_mr with IBV_ACCESS_ON_DEMAND: Operation not supported";
  EXPECT_EQ(find(facts, "program").state, State::limited);
}

TEST(Checks, TheRemedyOfIoUringDependsOnTheReason) {
  EXPECT_NE(find(with_guard("pins", FAULTLINE_GUARD_MISSING, ENOMEM), "io_uring").mend.find("ulimit -l"),
            std::string::npos);
  EXPECT_NE(find(with_guard("pins", FAULTLINE_GUARD_MISSING, EMFILE), "io_uring").mend.find("ulimit -n"),
            std::string::npos);
  EXPECT_EQ(find(with_guard("pins", FAULTLINE_GUARD_MISSING, EINVAL), "io_uring").mend,
            "Linux 5.13 or later");
  Facts facts = with_guard("pins", FAULTLINE_GUARD_MISSING, EPERM);
  EXPECT_NE(find(facts, "io_uring").mend.find("seccomp"), std::string::npos);
  facts.host.io_uring_disabled = 2;
  EXPECT_EQ(find(facts, "io_uring").mend, "sudo sysctl -w kernel.io_uring_disabled=0");
}

TEST(Checks, TheRemedyOfUserfaultfdDependsOnTheReason) {
  EXPECT_NE(
      find(with_guard("userfaultfd", FAULTLINE_GUARD_MISSING, EPERM), "userfaultfd").mend.find("seccomp"),
      std::string::npos);
  const Finding old =
      find(with_guard("userfaultfd", FAULTLINE_GUARD_LIMITED, 0, "no files: x"), "userfaultfd");
  EXPECT_EQ(old.state, State::limited);
  EXPECT_EQ(old.reason, "no files");
  EXPECT_EQ(old.mend, "Linux 6.7 or later");
  EXPECT_EQ(find(with_guard("userfaultfd", FAULTLINE_GUARD_MISSING, ENOSYS), "userfaultfd").mend,
            "a kernel with CONFIG_USERFAULTFD");
}

TEST(Checks, KernelsAreComparedByNumber) {
  EXPECT_EQ(parse_kernel_version("6.12.0-1-amd64"), (KernelVersion{6, 12}));
  EXPECT_EQ(parse_kernel_version("5.4"), (KernelVersion{5, 4}));
  EXPECT_EQ(parse_kernel_version("unknown"), (KernelVersion{}));
  Facts facts = whole_machine();
  const auto state_with = [&](const char* release) {
    facts.host.kernel = release;
    return find(facts, "kernel").state;
  };
  EXPECT_EQ(state_with("6.7.0"), State::ok);
  EXPECT_EQ(state_with("10.0.0"), State::ok);
  EXPECT_EQ(state_with("6.6.99"), State::limited);
  EXPECT_EQ(state_with("5.10.0-30-amd64"), State::limited);
}

TEST(Checks, TheHostsDevicesAreHidden) {
  Facts facts = whole_machine();
  facts.host.adapters = {"mlx5_0", "rxe0"};
  const Finding finding = find(facts, "host devices");
  EXPECT_EQ(finding.state, State::limited);
  EXPECT_NE(finding.reason.find("mlx5_0, rxe0"), std::string::npos);
}

TEST(Checks, LimitsOfTheHostAreFound) {
  const auto failures_with = [](auto change) {
    Facts facts = whole_machine();
    change(facts.host);
    return failures(facts);
  };
  EXPECT_EQ(failures_with([](HostFacts& host) { host.usable_cpus = 1; }), Names{"CPUs"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.available_bytes = 64 << 20; }), Names{"memory"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.shm_bytes = 64 << 20; }), Names{"/dev/shm"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.shm_bytes.reset(); }), Names{"/dev/shm"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.huge_pages = 0; }), Names{"huge pages"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.missing_rights = "CAP_NET_RAW"; }),
            Names{"capabilities"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.socket_buffer_bytes = 208 << 10; }),
            Names{"own address"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.own_addresses.clear(); }), Names{"own address"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.directory.clear(); }), Names{"wires"});
  EXPECT_EQ(failures_with([](HostFacts& host) { host.switch_program.clear(); }), Names{"wires"});
}

TEST(Checks, TheJsonPageHasEachCheck) {
  Facts facts = whole_machine();
  facts.host.usable_cpus = 1;
  const auto page = nlohmann::json::parse(doctor_page(facts, true));
  EXPECT_EQ(page["programs_run"], true);
  ASSERT_EQ(page["checks"].size(), checks().size());
  for (const auto& row : page["checks"]) {
    EXPECT_EQ(row["state"], row["name"] == "CPUs" ? "limited" : "ok") << row;
    EXPECT_EQ(row["mend"] == "", row["state"] == "ok") << row;
  }
}

}  // namespace
}  // namespace faultline::cli::checks_test
