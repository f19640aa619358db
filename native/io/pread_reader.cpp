#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "io/read_progress.h"

namespace fxload {
namespace {

// One thread a request in flight, each in a blocking pread. What io_uring does with a queue, this
// does with threads: it works on every kernel and under every seccomp filter.
class PreadReader final : public Reader {
 public:
  explicit PreadReader(size_t depth) : depth_(depth) { threads_.reserve(depth); }

  Status start() {
    for (size_t i = 0; i < depth_; ++i) {
      try {
        threads_.emplace_back([this] { serve(); });
      } catch (const std::system_error& error) {
        if (threads_.empty()) {
          return Status::error(Code::kMemory,
                               std::string("the host refuses a thread: ") + error.what());
        }
        depth_ = threads_.size();  // a process limit: serve with what there is
        break;
      }
    }
    return {};
  }

  ~PreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return "pread"; }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return in_flight_; }

  size_t submit(std::span<const ReadRequest> requests) override {
    const size_t taken = std::min(requests.size(), depth_ - in_flight_);
    if (taken == 0) return 0;
    {
      const std::lock_guard lock(mutex_);
      queue_.insert(queue_.end(), requests.begin(), requests.begin() + static_cast<long>(taken));
    }
    in_flight_ += taken;
    if (taken == 1) {
      work_ready_.notify_one();
    } else {
      work_ready_.notify_all();
    }
    return taken;
  }

  void reap(std::vector<ReadCompletion>& out, TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    done_ready_.wait_until(lock, deadline, [this] { return !done_.empty() || woken_; });
    woken_ = false;
    in_flight_ -= done_.size();
    out.insert(out.end(), std::make_move_iterator(done_.begin()),
               std::make_move_iterator(done_.end()));
    done_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    done_ready_.notify_one();
  }

 private:
  static Status read(const ReadRequest& request) {
    ReadProgress progress(request);
    Status status;
    for (;;) {
      Result<ReadProgress::Step> step = progress.next();
      if (!step.ok()) return step.status();
      const ssize_t got =
          ::pread(step->fd, step->into, step->length, static_cast<off_t>(step->offset));
      if (progress.advance(got < 0 ? -errno : got, &status)) return status;
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const ReadRequest request = queue_.front();
      queue_.pop_front();
      lock.unlock();
      Status status = read(request);
      lock.lock();
      done_.push_back({request.tag, std::move(status)});
      done_ready_.notify_one();
    }
  }

  size_t depth_;
  size_t in_flight_ = 0;  // of the submitting thread alone
  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable done_ready_;
  std::deque<ReadRequest> queue_;
  std::vector<ReadCompletion> done_;
  bool stopping_ = false;
  bool woken_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Reader>> make_pread_reader(size_t depth) {
  auto reader = std::make_unique<PreadReader>(depth);
  if (Status status = reader->start(); !status.ok()) return status;
  return std::unique_ptr<Reader>(std::move(reader));
}

}  // namespace fxload
