#include <doctest/doctest.h>

#include <future>

#include "base/clock.h"
#include "base/fan_out.h"
#include "base/quarantine.h"

namespace fxload {
namespace {

TEST_CASE("a thread that is still held is kept, and joined once it is through") {
  Quarantine quarantine;
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = owned;
  auto gate = std::make_shared<std::promise<void>>();
  quarantine.adopt(Worker(
      "test", [owned = std::move(owned), opened = gate->get_future().share()] { opened.wait(); }));
  CHECK(quarantine.reap() == 1);
  CHECK_FALSE(watched.expired());
  gate->set_value();
  const TimePoint deadline = after_seconds(30);
  while (quarantine.reap() > 0 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(quarantine.reap() == 0);
  CHECK(watched.expired());
}

TEST_CASE("a fan-out reports the first error in order and gives up at its deadline") {
  auto quarantine = std::make_shared<Quarantine>();
  {
    auto work = FanOut::start(20, 4, quarantine, [](size_t i) -> Status {
      if (i < 7) return {};
      return Status::error(Code::kIo, std::to_string(i));
    });
    REQUIRE(work.ok());
    CHECK((*work)->wait(after_seconds(30)));
    CHECK((*work)->first_error().detail().reason == "7");
  }
  auto gate = std::make_shared<std::promise<void>>();
  {
    auto work =
        FanOut::start(1, 1, quarantine, [opened = gate->get_future().share()](size_t) -> Status {
          opened.wait();
          return {};
        });
    REQUIRE(work.ok());
    CHECK_FALSE((*work)->wait(Clock::now() + std::chrono::milliseconds(10)));
  }
  CHECK(quarantine->reap() == 1);
  gate->set_value();
}

}  // namespace
}  // namespace fxload
