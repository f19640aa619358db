#include "platforms/ascend/npu_smi.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "device/pci.h"

extern char** environ;

namespace fxload::ascend {

namespace {

int milliseconds_until(TimePoint deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 60'000));
}

// Waits for the child to end; kills it at the deadline. True if it succeeded. A child that even
// then does not end is held by the kernel, and left to it.
bool reap(pid_t child, TimePoint deadline) {
  bool killed = false;
  TimePoint limit = deadline;
  for (;;) {
    int outcome = 0;
    const pid_t ended = ::waitpid(child, &outcome, WNOHANG);
    if (ended == child) return !killed && WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0;
    if (ended < 0) return false;  // somebody else has reaped it
    if (Clock::now() >= limit) {
      if (killed) return false;
      ::kill(child, SIGKILL);
      killed = true;
      limit = after_seconds(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// All that arrives until the end of the stream; nothing where the deadline comes first.
std::optional<std::string> read_all(int fd, TimePoint deadline) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, milliseconds_until(deadline)) <= 0 && Clock::now() >= deadline) {
      return std::nullopt;
    }
    if (waiting.revents == 0) continue;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got > 0) {
      text.append(buffer.data(), static_cast<size_t>(got));
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream parts(line);
  std::string cell;
  std::getline(parts, cell, '|');  // before the first bar
  while (std::getline(parts, cell, '|')) {
    const size_t begin = cell.find_first_not_of(' ');
    const size_t end = cell.find_last_not_of(" \r");
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command, TimePoint deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  std::vector<char*> arguments;
  for (const std::string& part : command) arguments.push_back(const_cast<char*>(part.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failed =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  writing.reset();
  if (failed != 0) return std::nullopt;
  std::optional<std::string> text = read_all(reading.get(), deadline);
  if (!text) ::kill(child, SIGKILL);
  if (!reap(child, deadline)) return std::nullopt;
  return text;
}

// Two lines to a device: the first begins with its number; the second holds the address, and begins
// with the chip's number within the device and, on hosts with two chips a device, with what counts
// there, the number of the chip on the host.
//
//   | 4     910B3               | OK            | 93.6        40                0    / 0 | | 0 |
//   0000:C1:00.0  | 0           0    / 0          3123 / 65536         |
std::string pci_bus_in(const std::string& table, int physical) {
  std::istringstream lines(table);
  std::string line;
  int device = -1;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() < 2) continue;
    std::istringstream numbers(cells[0]);
    int first = -1;
    if (!(numbers >> first)) continue;
    const std::string bus = normal_pci_bus(cells[1]);
    if (bus.empty()) {
      device = first;
      continue;
    }
    int chip = -1;
    if ((numbers >> chip ? chip : device) == physical) return bus;
  }
  return "";
}

}  // namespace fxload::ascend
