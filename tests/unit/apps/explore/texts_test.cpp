// SPDX-License-Identifier: BSD-3-Clause
// Journals, scenarios, test files, start words and JUnit's XML.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <toml++/toml.h>

#include "apps/faultline/explore/junit.hpp"
#include "apps/faultline/explore/run/decision.hpp"
#include "apps/faultline/explore/run/test_description.hpp"

namespace faultline::cli::texts_test {
namespace {

constexpr const char* kHeader = R"({"faultline_journal":1,"scenario":"s","seed":7,"program":"p"})";
constexpr const char* kErrno =
    R"({"rule":"third \"post\"","event":"call ibv_post_send","object":"faultline0 qp 0","n":3,"do":{"errno":"ENOMEM"}})";
constexpr const char* kStatus =
    R"({"rule":"r","event":"completion","object":"faultline0 cq 1","n":0,"do":{"status":"IBV_WC_GENERAL_ERR","late":{"polls":4,"share":0.5},"list":[1,true]}})";

TEST(Journal, HasEachLineAgainByteForByte) {
  const std::string text = std::string(kHeader) + "\n" + kErrno + "\n" + kStatus + "\n";
  const Journal journal = parse_journal(text, 1);
  EXPECT_EQ(journal.header, kHeader);
  ASSERT_EQ(journal.decisions.size(), 2U);
  EXPECT_EQ(journal_text(journal.header, 1, journal.decisions), text);
  EXPECT_EQ(journal_text(journal.header, 0, journal.decisions), std::string(kHeader) + "\n")
      << "of another program";
  EXPECT_EQ(text_of(journal.decisions[0]),
            "program 1: call ibv_post_send, faultline0 qp 0, n 3: errno ENOMEM");
  EXPECT_TRUE(journal.decisions[0].is_same(journal.decisions[0]));
  EXPECT_FALSE(journal.decisions[0].is_same(journal.decisions[1]));
}

TEST(Journal, LeavesOutWhatIsNoDecision) {
  for (const char* const line :
       {"", "{", "7", "null", "[]", "{}", R"({"event":1,"object":"o","n":1,"do":{}})",
        R"({"event":"e","object":"o","n":-1,"do":{}})", R"({"event":"e","object":"o","do":{}})"}) {
    const Journal journal = parse_journal(std::string(kHeader) + "\n" + line + "\n" + kErrno, 0);
    EXPECT_EQ(journal.decisions.size(), 1U) << line;
  }
  EXPECT_EQ(parse_journal("", 0).header, "");
  EXPECT_EQ(parse_journal(std::string(kHeader) + "\n" + kHeader + "\n", 0).decisions.size(), 0U);
}

TEST(Journal, BecomesAScenarioWithOneRuleADecision) {
  const Journal journal = parse_journal(std::string(kErrno) + "\n" + kStatus, 0);
  const toml::table table = toml::parse(scenario_text("a \"b\", seed 7", 7, 0, journal.decisions));
  EXPECT_EQ(table["name"].value<std::string>(), "a \"b\", seed 7");
  EXPECT_EQ(table["seed"].value<int64_t>(), 7);
  const toml::array& rules = *table["rule"].as_array();
  ASSERT_EQ(rules.size(), 2U);
  const auto first = toml::node_view(rules[0]);
  EXPECT_EQ(first["name"].value<std::string>(), "third \"post\", decision 1");
  EXPECT_EQ(first["when"]["at"].value<std::string>(), "call ibv_post_send");
  EXPECT_EQ(first["when"]["object"].value<std::string>(), "faultline0 qp 0");
  EXPECT_EQ(first["when"]["n"].value<int64_t>(), 3);
  EXPECT_EQ(first["do"]["errno"].value<std::string>(), "ENOMEM");
  const auto second = toml::node_view(rules[1]);
  EXPECT_EQ(second["do"]["late"]["polls"].value<int64_t>(), 4);
  EXPECT_EQ(second["do"]["late"]["share"].value<double>(), 0.5);
  EXPECT_EQ(second["do"]["list"][0].value<int64_t>(), 1);
  EXPECT_EQ(second["do"]["list"][1].value<bool>(), true);
}

TEST(Junit, EscapesWhatXmlBars) {
  const std::string text = junit_text(
      "s", {{"seed 1"}, {"seed 2", "hang", "a<b>&\"c\"", "tab\t, bell\a, \xc3\xa9, \xff, \xed\xa0\x80."}});
  EXPECT_NE(text.find("tests=\"2\" failures=\"1\""), std::string::npos);
  EXPECT_NE(text.find("name=\"seed 1\"/>"), std::string::npos);
  EXPECT_NE(text.find("message=\"a&lt;b&gt;&amp;&quot;c&quot;\""), std::string::npos);
  EXPECT_NE(text.find("tab\t, bell?, \xc3\xa9, ?, ???."), std::string::npos) << text;
}

class TestFile : public testing::Test {
 protected:
  TestFile() {
    char pattern[] = "/tmp/faultline-test-XXXXXX";
    folder = mkdtemp(pattern);
  }
  ~TestFile() override { std::filesystem::remove_all(folder); }
  std::vector<TestProgram> read(const std::string& text) {
    std::ofstream(folder + "/t.toml") << text;
    error = "";
    return read_test_file(folder + "/t.toml", error);
  }
  std::string folder;
  std::string error;
};

TEST_F(TestFile, HasProgramsInOrder) {
  const auto programs = read(
      "[[program]]\ncommand = \"server -p 'a b'\"\nwait = false\nlistens = 18515\nside = \"c\"\n"
      "[[program]]\ncommand = [\"client\", \"x y\"]\ndelay_ms = 20\nip = \"198.18.0.9\"\n");
  ASSERT_EQ(error, "");
  ASSERT_EQ(programs.size(), 2U);
  EXPECT_EQ(programs[0].words, (std::vector<std::string>{"server", "-p", "a b"}));
  EXPECT_FALSE(programs[0].is_awaited);
  EXPECT_EQ(programs[0].listens, 18515U);
  EXPECT_EQ(programs[0].side, "c");
  EXPECT_EQ(programs[1].words, (std::vector<std::string>{"client", "x y"}));
  EXPECT_TRUE(programs[1].is_awaited);
  EXPECT_EQ(programs[1].delay_ms, 20U);
  EXPECT_EQ(programs[1].ip, "198.18.0.9");
}

TEST_F(TestFile, RefusesMistakesWithOneLine) {
  for (const char* const text :
       {"", "program = 3", "other = 1\n[[program]]\ncommand = \"a\"", "[[program]]\n",
        "[[program]]\ncommand = \"\"", "[[program]]\ncommand = []", "[[program]]\ncommand = [1]",
        "[[program]]\ncommand = \"$(a)\"", "[[program]]\ncommand = \"'\"", "[[program]]\ncommand = \"a | b\"",
        "[[program]]\ncommand = \"a\"\nwait = 1", "[[program]]\ncommand = \"a\"\ndelay_ms = -1",
        "[[program]]\ncommand = \"a\"\nlistens = 70000", "[[program]]\ncommand = \"a\"\nside = 1",
        "[[program]]\ncommand = \"a\"\nports = 1", "["}) {
    EXPECT_TRUE(read(text).empty()) << text;
    EXPECT_NE(error, "") << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST_F(TestFile, NamesTheLineAndTheKeyOfAMistake) {
  const auto starts = [&](const std::string& text, const std::string& begin) {
    static_cast<void>(read(text));
    EXPECT_TRUE(error.starts_with(folder + "/t.toml:" + begin)) << error;
  };
  const std::string first = "[[program]]\ncommand = \"a\"\n";
  starts("", "1: program: is missing; add a table [[program]]");
  starts(first + "[[program]]\n", "3: program.command: is missing; give a program");
  starts(first + "[[program]]\ncommand = [\"a\", 1]\n", "4: program.command: must be a list of strings");
  starts(first + "[[program]]\ncommand = [\"\"]\n", "4: program.command: must begin with the name");
  starts(first + "[[program]]\ncommand = \"'\"\n", "4: program.command: ': cannot be split into words");
  starts(first + "comand = \"b\"\n", "3: program.comand: unknown key; known here: command, side");
  starts(first + "listens = 70000\n", "3: program.listens: must be a whole number from 0 to 65535");
  starts(first + "wait = 1\n", "3: program.wait: must be true or false");
}

TEST(StartWords, AreThoseOfFaultlineRunWithADevice) {
  cli::Test test{{}, {{{"server"}}, {{"client", "--x"}}}};
  assign_sides(test);
  EXPECT_EQ(start_words(test, test.programs[1], "run"), (std::vector<std::string>{"client", "--x"}));
  test.devices.wire = "w0";
  assign_sides(test);
  EXPECT_EQ(start_words(test, test.programs[1], "run"),
            (std::vector<std::string>{"run", "--wire", "w0", "--side", "b", "client", "--x"}));
  cli::Test ranks{{"w0", "", false, true}, {{{"rank"}}, {{"rank"}}}};
  assign_sides(ranks);
  EXPECT_EQ(start_words(ranks, ranks.programs[0], "run"),
            (std::vector<std::string>{"run", "--wire", "w0", "--share", "rank"}));
}

}  // namespace
}  // namespace faultline::cli::texts_test
