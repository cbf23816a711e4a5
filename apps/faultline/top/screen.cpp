// SPDX-License-Identifier: BSD-3-Clause
#include "apps/faultline/top/screen.hpp"

#include <algorithm>
#include <array>
#include <clocale>
#include <csignal>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <curses.h>
#include <spdlog/fmt/fmt.h>

#include "apps/faultline/top/tables.hpp"
#include "stack/base/clock.hpp"

namespace faultline::cli {
namespace {

enum class Page : uint8_t { qps, regions, faults, counters, failures, help, count_ };
constexpr std::array<const char*, 5> kPageNames{"1 QPs", "2 regions", "3 faults", "4 counters", "5 failures"};
constexpr int kEscape = 27;
constexpr size_t kMostDevices = 8;  ///< rows of the table of devices, which is always shown
constexpr unsigned kShortestMs = 100;
constexpr unsigned kLongestMs = 60'000;
constexpr uint64_t kSignalLooksMs = 200;
constexpr uint64_t kNsPerMs = 1'000'000;

/// Signals that end the program. They stay pending, so that the terminal is restored first.
sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

constexpr std::array<const char*, 14> kHelp{
    "Keys",
    "  1 to 5     QPs, regions, page faults, counters, failures",
    "  s          next order of the QPs; r reverses it",
    "  /          filter QPs by a part of their row or program",
    "  up, down   select a QP; page up and down, home",
    "  Enter      open the selected QP; Enter or Esc closes it",
    "  p          pause and continue",
    "  + -        refresh more or less often",
    "  q          quit",
    "",
    "WAITS FOR: turn = the engine, answer = the peer, window = acknowledgements,",
    "  credit or receiver = a receive of the peer, page = a page of this program,",
    "  peer page = a page of the peer, pace = congestion control",
    "SENT/WIN: packets without an acknowledgement, and the window"};

class Screen {
 public:
  Screen(const Choice& choice, unsigned interval_ms) : choice_(choice), interval_ms_(interval_ms) {
    initscr();
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    if (has_colors()) {
      start_color();
      use_default_colors();
      init_pair(kTitle, COLOR_CYAN, -1);
    }
  }
  ~Screen() { endwin(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void run() {
    state_ = read_state(choice_);
    const sigset_t signals = end_signals();
    const timespec at_once{};
    while (!quit_ && sigtimedwait(&signals, nullptr, &at_once) < 0) await_key();
  }

 private:
  static constexpr short kTitle = 1;

  void refresh_state() {
    TopState now = read_state(choice_);
    set_rates(now, state_);
    state_ = std::move(now);
    next_refresh_ns_ = monotonic_ns() + interval_ms_ * kNsPerMs;
  }

  void await_key() {
    const uint64_t now = monotonic_ns();
    if (now >= next_refresh_ns_ && !paused_) {
      refresh_state();
      return draw();
    }
    const uint64_t left_ms = paused_ ? kSignalLooksMs : (next_refresh_ns_ - now) / kNsPerMs + 1;
    timeout(static_cast<int>(std::min<uint64_t>(left_ms, kSignalLooksMs)));
    const int key = getch();
    if (key == ERR) return;
    on_key(key);
    draw();
  }

  void on_key(int key) {
    if (typing_) return type(key);
    switch (key) {
      case 'q':
        quit_ = true;
        return;
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
        page_ = static_cast<Page>(key - '1');
        first_ = selected_ = 0;
        is_open_ = false;
        return;
      case 'h':
      case '?':
        page_ = page_ == Page::help ? Page::qps : Page::help;
        return;
      case 's':
        selection_.order = static_cast<QpOrder>((static_cast<unsigned>(selection_.order) + 1) %
                                                static_cast<unsigned>(QpOrder::count_));
        return;
      case 'r':
        selection_.reversed = !selection_.reversed;
        return;
      case '/':
        typing_ = true;
        selection_.filter.clear();
        return;
      case 'p':
        paused_ = !paused_;
        return;
      case '+':
        interval_ms_ = std::max(interval_ms_ / 2, kShortestMs);
        return;
      case '-':
        interval_ms_ = std::min(interval_ms_ * 2, kLongestMs);
        return;
      case KEY_UP:
        selected_ -= selected_ != 0 ? 1 : 0;
        return;
      case KEY_DOWN:
        ++selected_;
        return;
      case KEY_PPAGE:
        selected_ -= std::min(selected_, rows_);
        return;
      case KEY_NPAGE:
        selected_ += rows_;
        return;
      case KEY_HOME:
        selected_ = 0;
        return;
      case '\n':
      case KEY_ENTER:
        if (page_ == Page::qps) is_open_ = !is_open_;
        return;
      case kEscape:
        is_open_ = false;
        if (page_ == Page::help) page_ = Page::qps;
        return;
      default:
        return;
    }
  }

  void type(int key) {
    if (key == '\n' || key == KEY_ENTER) {
      typing_ = false;
    } else if (key == kEscape) {
      typing_ = false;
      selection_.filter.clear();
    } else if (key == KEY_BACKSPACE || key == '\b' || key == 0x7f) {
      if (!selection_.filter.empty()) selection_.filter.pop_back();
    } else if (key >= ' ' && key < 0x7f) {
      selection_.filter += static_cast<char>(key);
    }
    selected_ = 0;
  }

  void put(const std::string& line, int attributes = 0) {
    if (line_ >= LINES) return;
    if (attributes != 0) attron(attributes);
    mvaddnstr(line_++, 0, line.c_str(), COLS);
    if (attributes != 0) attroff(attributes);
  }

  void put_table(const Table& table, std::optional<size_t> selected = {}) {
    put(table.header, static_cast<int>(A_REVERSE));
    for (size_t i = 0; i < table.rows.size(); ++i)
      put(table.rows[i], selected == i ? static_cast<int>(A_BOLD | A_UNDERLINE) : 0);
  }

  /// Returns the range of a table that fits below the current line, with the selected row in it.
  Range visible(size_t total) {
    rows_ = LINES > line_ + 1 ? static_cast<size_t>(LINES - line_ - 1) : 1;
    if (total == 0)
      selected_ = 0;
    else
      selected_ = std::min(selected_, total - 1);
    if (selected_ < first_) first_ = selected_;
    if (selected_ >= first_ + rows_) first_ = selected_ - rows_ + 1;
    return {first_, rows_};
  }

  void draw() {
    erase();
    line_ = 0;
    size_t qps = 0;
    for (const DeviceState& device : state_.devices) qps += device.qps.size();
    put(fmt::format("faultline top: {} devices, {} QPs; every {:.3g} s{}; h: help, q: quit",
                    state_.devices.size(), qps, interval_ms_ / 1e3, paused_ ? ", paused" : ""),
        static_cast<int>(COLOR_PAIR(kTitle) | A_BOLD));
    put_table(device_table(state_, {0, kMostDevices}));
    std::string tabs;
    for (size_t i = 0; i < kPageNames.size(); ++i)
      tabs += fmt::format(fmt::runtime(static_cast<size_t>(page_) == i ? "[{}] " : " {}  "), kPageNames[i]);
    if (page_ == Page::qps)
      tabs +=
          fmt::format("  order: {}{}{}", name_of(selection_.order), selection_.reversed ? ", reversed" : "",
                      typing_                     ? "  filter: " + selection_.filter + "_"
                      : selection_.filter.empty() ? ""
                                                  : "  filter: " + selection_.filter);
    put("");
    put(tabs, static_cast<int>(COLOR_PAIR(kTitle)));
    draw_page();
    refresh();
  }

  void draw_page() {
    switch (page_) {
      case Page::qps: {
        const std::vector<QpReference> qps = select_qps(state_, selection_);
        if (is_open_ && !qps.empty()) {
          selected_ = std::min(selected_, qps.size() - 1);
          for (const std::string& line : qp_page(state_, qps[selected_])) put(line);
          return;
        }
        const Range range = visible(qps.size());
        return put_table(qp_table(qps, range), selected_ - first_);
      }
      case Page::regions: {
        size_t total = 0;
        for (const DeviceState& device : state_.devices) total += device.regions.size();
        return put_table(region_table(state_, visible(total)));
      }
      case Page::faults:
        return put_table(fault_table(state_, visible(fault_table(state_, {0, 0}).total)));
      case Page::counters:
        return put_table(counter_table(state_, visible(counter_table(state_, {0, 0}).total)));
      case Page::failures:
        return put_table(failure_table(state_, visible(failure_table(state_, {0, 0}).total)));
      case Page::help:
        for (const char* const line : kHelp) put(line);
        return;
      case Page::count_:
        return;
    }
  }

  const Choice choice_;
  unsigned interval_ms_;
  TopState state_;
  uint64_t next_refresh_ns_ = 0;
  Page page_ = Page::qps;
  QpSelection selection_;
  bool typing_ = false;
  bool paused_ = false;
  bool is_open_ = false;
  bool quit_ = false;
  size_t selected_ = 0;
  size_t first_ = 0;
  size_t rows_ = 1;
  int line_ = 0;
};

}  // namespace

void show_screen(const Choice& choice, unsigned interval_ms) {
  std::setlocale(LC_CTYPE, "");
  const sigset_t signals = end_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  Screen(choice, std::clamp(interval_ms, kShortestMs, kLongestMs)).run();
}

}  // namespace faultline::cli
