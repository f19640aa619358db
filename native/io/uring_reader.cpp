#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "base/align.h"
#include "io/read_progress.h"

#ifdef FXLOAD_HAVE_URING
#include <liburing.h>
#endif

namespace fxload {

#ifdef FXLOAD_HAVE_URING
namespace {

// Why a ring cannot be had, in the words of whoever has to change it.
std::string refusal(int os_errno) {
  if (os_errno == EPERM) {
    if (FILE* setting = std::fopen("/proc/sys/kernel/io_uring_disabled", "re")) {
      int value = 0;
      const bool read = std::fscanf(setting, "%d", &value) == 1;
      std::fclose(setting);
      if (read && value != 0) {
        return "kernel.io_uring_disabled is " + std::to_string(value);
      }
    }
    return "io_uring_setup was refused with EPERM: a seccomp filter or security policy forbids it";
  }
  if (os_errno == ENOSYS) return "this kernel, or a seccomp filter, has no io_uring";
  if (os_errno == ENOMEM) return "io_uring_setup: not enough lockable memory (RLIMIT_MEMLOCK)";
  return "io_uring_setup failed: " + std::generic_category().message(os_errno);
}

// A ring with its completion queue; one thread submits and reaps.
class UringReader final : public Reader {
 public:
  explicit UringReader(size_t depth) : depth_(depth), slots_(depth) {
    free_.reserve(depth);
    for (size_t i = depth; i > 0; --i) free_.push_back(i - 1);
  }

  Status start(std::span<const std::shared_ptr<File>> files, FixedMemory fixed) {
    io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP;
    // One entry more than requests: the wake-up poll shares the ring.
    const int failed =
        io_uring_queue_init_params(static_cast<unsigned>(depth_ + 1), &ring_, &params);
    if (failed < 0) return Status::error(Code::kUnsupported, refusal(-failed));
    ring_ready_ = true;
    if (params.sq_entries < depth_ + 1) {
      return Status::error(Code::kUnsupported,
                           "io_uring gives a queue of only " + std::to_string(params.sq_entries));
    }
    wake_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_fd_.valid()) return Status::from_errno(errno, "create an eventfd");
    register_files(files);
    register_memory(fixed);
    // Requests of file systems that cannot start them without blocking go to kernel workers, by
    // default four a processor: too few to cover an array's latency.
    std::array<unsigned, 2> workers{static_cast<unsigned>(depth_), 0};
    (void)io_uring_register_iowq_max_workers(&ring_, workers.data());
    if (Status status = prove(); !status.ok()) return status;
    arm_wake();
    return {};
  }

  ~UringReader() override {
    if (!ring_ready_) return;
    std::vector<ReadCompletion> ignored;
    while (in_flight() > 0) reap(ignored, Clock::now() + std::chrono::seconds(1));
    io_uring_queue_exit(&ring_);
  }

  std::string_view name() const override { return "io_uring"; }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return depth_ - free_.size(); }
  bool memory_registered() const { return !fixed_.empty(); }

  size_t submit(std::span<const ReadRequest> requests) override {
    size_t taken = 0;
    while (taken < requests.size() && !free_.empty()) {
      const size_t slot = free_.back();
      free_.pop_back();
      slots_[slot] = ReadProgress(requests[taken]);
      issue(slot);
      ++taken;
    }
    if (taken > 0) flush();
    return taken;
  }

  void reap(std::vector<ReadCompletion>& out, TimePoint deadline) override {
    if (!failed_.empty()) {
      // Requests that never reached the kernel.
      move_failed(out);
      return;
    }
    const double wait_s = std::max(0.0, seconds_between(Clock::now(), deadline));
    __kernel_timespec timeout{};
    timeout.tv_sec = static_cast<long long>(wait_s);
    timeout.tv_nsec = static_cast<long long>((wait_s - static_cast<double>(timeout.tv_sec)) * 1e9);
    io_uring_cqe* first = nullptr;
    // Submits, too, what an earlier submission had to leave behind.
    const int waited = io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, nullptr);
    if (waited < 0 && waited != -ETIME && waited != -EINTR) {
      // Out of memory for the moment, most likely. Completions may be there all the same.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    unsigned seen = 0;
    unsigned head;
    io_uring_cqe* cqe;
    bool reissued = false;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      ++seen;
      const uint64_t data = io_uring_cqe_get_data64(cqe);
      if (data == kWakeTag) {
        drain_wake();
        reissued = true;
        continue;
      }
      if (data >= slots_.size()) continue;  // liburing's own timeout on kernels before 5.11
      Status status;
      if (slots_[data].advance(cqe->res, &status)) {
        out.push_back({slots_[data].request().tag, std::move(status)});
        free_.push_back(data);
      } else {
        again_.push_back(data);
      }
    }
    io_uring_cq_advance(&ring_, seen);
    for (const size_t slot : again_) issue(slot);
    reissued = reissued || !again_.empty();
    again_.clear();
    if (reissued) flush();
    move_failed(out);
  }

  void wake() override {
    const uint64_t one = 1;
    // A full counter means that a wake-up is already pending.
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
  }

 private:
  static constexpr uint64_t kWakeTag = UINT64_MAX - 1;

  // A ring can be had and yet not be entered: a filter may allow one call and refuse the other.
  Status prove() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    const int submitted = io_uring_submit(&ring_);
    io_uring_cqe* cqe = nullptr;
    __kernel_timespec timeout{5, 0};
    const int waited =
        submitted < 0 ? submitted : io_uring_wait_cqe_timeout(&ring_, &cqe, &timeout);
    if (waited < 0) {
      return Status::error(Code::kUnsupported,
                           "io_uring_enter failed: " + std::generic_category().message(-waited));
    }
    io_uring_cqe_seen(&ring_, cqe);
    return {};
  }

  void register_files(std::span<const std::shared_ptr<File>> files) {
    std::vector<int> fds;
    for (const auto& file : files) {
      if (file->direct_fd() < 0) continue;
      file_index_.emplace(file->direct_fd(), static_cast<int>(fds.size()));
      fds.push_back(file->direct_fd());
    }
    if (fds.empty() ||
        io_uring_register_files(&ring_, fds.data(), static_cast<unsigned>(fds.size())) != 0) {
      file_index_.clear();  // a limit on open files: the plain descriptors serve
    }
  }

  void register_memory(FixedMemory fixed) {
    if (fixed.empty()) return;
    // The kernel takes at most 1 GiB a buffer.
    constexpr size_t kLargest = size_t{1} << 30;
    std::vector<iovec> pieces;
    for (size_t at = 0; at < fixed.size(); at += kLargest) {
      pieces.push_back({fixed.data() + at, std::min(kLargest, fixed.size() - at)});
    }
    if (io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size())) ==
        0) {
      fixed_ = fixed;
      fixed_piece_bytes_ = kLargest;
    }
  }

  void issue(size_t slot) {
    const Result<ReadProgress::Step> planned = slots_[slot].next();
    if (!planned.ok()) {
      failed_.push_back({slots_[slot].request().tag, planned.status()});
      free_.push_back(slot);
      return;
    }
    const ReadProgress::Step step = *Result<ReadProgress::Step>(planned);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      flush();
      sqe = io_uring_get_sqe(&ring_);
    }
    const auto registered = file_index_.find(step.fd);
    const int fd = registered != file_index_.end() ? registered->second : step.fd;
    const auto length = static_cast<unsigned>(step.length);
    const size_t at = static_cast<size_t>(step.into - fixed_.data());
    const bool is_fixed = !fixed_.empty() && step.into >= fixed_.data() &&
                          step.into + step.length <= fixed_.data() + fixed_.size() &&
                          at / fixed_piece_bytes_ == (at + step.length - 1) / fixed_piece_bytes_;
    if (is_fixed) {
      io_uring_prep_read_fixed(sqe, fd, step.into, length, step.offset,
                               static_cast<int>(at / fixed_piece_bytes_));
    } else {
      io_uring_prep_read(sqe, fd, step.into, length, step.offset);
    }
    if (registered != file_index_.end()) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, slot);
  }

  void flush() {
    // EBUSY and EAGAIN: completions have to be taken first; the entries stay queued in the ring and
    // go out with the wait in reap(), which submits again.
    (void)io_uring_submit(&ring_);
  }

  void arm_wake() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_poll_add(sqe, wake_fd_.get(), POLLIN);
    io_uring_sqe_set_data64(sqe, kWakeTag);
    flush();
  }

  void drain_wake() {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof count);
    arm_wake();
  }

  void move_failed(std::vector<ReadCompletion>& out) {
    for (ReadCompletion& completion : failed_) out.push_back(std::move(completion));
    failed_.clear();
  }

  size_t depth_;
  io_uring ring_{};
  bool ring_ready_ = false;
  UniqueFd wake_fd_;
  std::vector<ReadProgress> slots_;
  std::vector<size_t> free_;
  std::vector<size_t> again_;
  std::vector<ReadCompletion> failed_;
  std::unordered_map<int, int> file_index_;
  FixedMemory fixed_;
  size_t fixed_piece_bytes_ = 1;
};

// A page of zeroes on disk would do; the running program is a file that can always be read.
Capability probe(bool with_memory) {
  const size_t page = page_bytes();
  std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(page, page), &std::free);
  if (!memory) return {false, "no memory"};
  const FixedMemory buffer(static_cast<std::byte*>(memory.get()), page);
  UringReader reader(2);
  if (Status status = reader.start({}, with_memory ? buffer : FixedMemory{}); !status.ok()) {
    return {false, status.detail().reason};
  }
  if (with_memory && !reader.memory_registered()) {
    return {false, "buffers cannot be registered: RLIMIT_MEMLOCK is too small"};
  }
  size_t head_bytes = 0;
  Result<std::shared_ptr<File>> file = File::open("/proc/self/exe", false, buffer, &head_bytes);
  if (!file.ok()) return {false, file.status().detail().reason};
  ReadRequest request{file->get(),   0, std::min<size_t>(page, (*file)->size()),
                      buffer.data(), 0, false};
  reader.submit({&request, 1});
  std::vector<ReadCompletion> done;
  const TimePoint deadline = after_seconds(5);
  while (done.empty() && Clock::now() < deadline) reader.reap(done, deadline);
  if (done.empty()) return {false, "a read through io_uring did not come back within 5 s"};
  if (!done[0].status.ok()) return {false, done[0].status.detail().reason};
  return {true, ""};
}

}  // namespace

Result<std::unique_ptr<Reader>> make_uring_reader(size_t depth,
                                                  std::span<const std::shared_ptr<File>> files,
                                                  FixedMemory fixed) {
  auto reader = std::make_unique<UringReader>(depth);
  if (Status status = reader->start(files, fixed); !status.ok()) return status;
  return std::unique_ptr<Reader>(std::move(reader));
}

Capability probe_uring() { return probe(false); }
Capability probe_registered_buffers() { return probe(true); }

#else

Result<std::unique_ptr<Reader>> make_uring_reader(size_t, std::span<const std::shared_ptr<File>>,
                                                  FixedMemory) {
  return Status::error(Code::kUnsupported, "this build of fxload has no liburing");
}

Capability probe_uring() { return {false, "this build of fxload has no liburing"}; }
Capability probe_registered_buffers() { return probe_uring(); }

#endif

Result<EngineChoice> make_reader(std::string_view engine, size_t depth,
                                 std::span<const std::shared_ptr<File>> files, FixedMemory fixed) {
  EngineChoice choice;
  if (engine != "pread") {
    if (engine != "auto" && engine != "io_uring") {
      return Status::error(Code::kUsage, "no I/O engine named '" + std::string(engine) +
                                             "': auto, io_uring or pread");
    }
    Result<std::unique_ptr<Reader>> reader = make_uring_reader(depth, files, fixed);
    if (reader.ok()) {
      choice.reader = std::move(*reader);
      choice.reason = "io_uring works here";
      return choice;
    }
    if (engine == "io_uring") return reader.status();
    choice.reason = reader.status().detail().reason;
  } else {
    choice.reason = "pread was asked for";
  }
  Result<std::unique_ptr<Reader>> reader = make_pread_reader(depth);
  if (!reader.ok()) return reader.status();
  choice.reader = std::move(*reader);
  return choice;
}

}  // namespace fxload
