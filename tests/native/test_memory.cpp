#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "base/align.h"
#include "base/wakeup.h"
#include "memory/copy_bandwidth.h"
#include "memory/memory_pool.h"
#include "memory/page_choice.h"
#include "memory/region.h"
#include "memory/touch.h"

namespace fxload {
namespace {

constexpr size_t kWindow = kHugePageBytes;

std::shared_ptr<Region> region_of(const std::shared_ptr<MemoryPool>& pool, size_t windows) {
  auto region = Region::create(pool, windows * kWindow, std::make_shared<Wakeup>());
  REQUIRE(region.ok());
  return *region;
}

bool backed(const std::byte* page) {
  unsigned char bits = 0;
  return ::mincore(const_cast<std::byte*>(page), page_bytes(), &bits) == 0 && (bits & 1) != 0;
}

bool mapped(const std::byte* address) {
  unsigned char bits = 0;
  return ::mincore(const_cast<std::byte*>(address), page_bytes(), &bits) == 0;
}

TEST_CASE("touching backs every page of a range and changes nothing") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 0);
  const auto region = region_of(pool, 1);
  bool touched = true;
  REQUIRE(region->acquire(0, &touched).ok());
  CHECK_FALSE(touched);
  ::madvise(region->data(), kWindow, MADV_NOHUGEPAGE);
  region->data()[5 * page_bytes() + 1] = std::byte{42};
  REQUIRE(touch(region->data() + 5 * page_bytes() + 1, 3 * page_bytes()).ok());
  for (size_t page = 5; page <= 8; ++page) CHECK(backed(region->data() + page * page_bytes()));
  CHECK_FALSE(backed(region->data() + 20 * page_bytes()));
  CHECK(region->data()[5 * page_bytes() + 1] == std::byte{42});
  region->drop(0, 0);
}

TEST_CASE("a window lives until its last holder, and a lease spans windows") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 0);
  std::byte* base = nullptr;
  {
    auto region = region_of(pool, 3);
    base = region->data();
    bool touched = false;
    for (size_t i = 0; i < 3; ++i) REQUIRE(region->acquire(i, &touched).ok());
    CHECK(pool->live_bytes() == 3 * kWindow);
    {
      const RegionLease lease(region, kWindow - 10, 20);
      std::memset(lease.data(), 7, 20);
      for (size_t i = 0; i < 3; ++i) region->drop(i, i);
      CHECK(region->live_windows() == 2);
      region.reset();
      CHECK(lease.data()[19] == std::byte{7});
      CHECK(pool->live_bytes() == 2 * kWindow);
      CHECK_FALSE(mapped(base + 2 * kWindow));
    }
  }
  CHECK(pool->live_bytes() == 0);
  for (size_t i = 0; i < 3; ++i) CHECK_FALSE(mapped(base + i * kWindow));
}

TEST_CASE("memory that is given back is moved to where it is wanted, still touched") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 2 * kWindow);
  auto first = region_of(pool, 3);
  bool touched = false;
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(first->acquire(i, &touched).ok());
    CHECK_FALSE(touched);
    REQUIRE(touch(first->data() + i * kWindow, kWindow).ok());
  }
  first->drop(0, 2);
  CHECK(pool->retained_bytes() == 2 * kWindow);  // the limit
  first.reset();
  auto second = region_of(pool, 3);
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(second->acquire(i, &touched).ok());
    CHECK(touched == (i < 2));
    if (touched) CHECK(backed(second->data() + i * kWindow));
  }
  CHECK(pool->retained_bytes() == 0);
  second->drop(0, 2);
  pool->trim();
  CHECK(pool->retained_bytes() == 0);
}

TEST_CASE("prefaulted memory serves as many windows as were asked for") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 0);
  REQUIRE(pool->prefault(3 * kWindow + 1, 2).ok());
  CHECK(pool->retained_bytes() == 4 * kWindow);
  auto region = region_of(pool, 4);
  bool touched = false;
  for (size_t i = 0; i < 4; ++i) {
    REQUIRE(region->acquire(i, &touched).ok());
    CHECK(touched);
    CHECK(backed(region->data() + (i + 1) * kWindow - page_bytes()));
  }
  region->drop(0, 3);
}

TEST_CASE("leases may be taken and dropped by many threads") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 4 * kWindow);
  auto region = region_of(pool, 8);
  bool touched = false;
  for (size_t i = 0; i < 8; ++i) REQUIRE(region->acquire(i, &touched).ok());
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < 200; ++i) {
          const RegionLease lease(region, (i % 7) * kWindow + t * 100, kWindow);
          lease.data()[0] = std::byte{1};
        }
      });
    }
  }
  CHECK(region->live_windows() == 8);
  region->drop(0, 7);
  CHECK(region->live_windows() == 0);
}

TEST_CASE("what is never placed leaves no mapping behind") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 0);
  auto region = region_of(pool, 5);
  std::byte* base = region->data();
  bool touched = false;
  REQUIRE(region->acquire(2, &touched).ok());
  region->drop(2, 2);
  region.reset();
  for (size_t i = 0; i < 5; ++i) CHECK_FALSE(mapped(base + i * kWindow));
}

TEST_CASE("small pages are chosen once, when huge ones have cost too much") {
  constexpr size_t kMiB = size_t{1} << 20;
  PageChoice cheap;
  CHECK_FALSE(cheap.record(16 * kMiB, 0.002));
  PageChoice dear;
  CHECK_FALSE(dear.record(4 * kMiB, 0.010));  // too little to tell
  CHECK(dear.record(4 * kMiB, 0.010));
  CHECK_FALSE(dear.record(64 * kMiB, 1));
  PageChoice later;
  CHECK_FALSE(later.record(1024 * kMiB, 0.1));
  CHECK(later.record(8 * kMiB, 0.016));
}

TEST_CASE("small pages apply to windows that are not placed yet") {
  auto pool = std::make_shared<MemoryPool>(kWindow, 0);
  auto region = region_of(pool, 3);
  region->use_small_pages(1);
  bool touched = false;
  REQUIRE(region->acquire(1, &touched).ok());
  region->data()[kWindow] = std::byte{1};
  CHECK(backed(region->data() + kWindow));
  CHECK_FALSE(backed(region->data() + kWindow + kWindow / 2));
  region->drop(1, 1);
}

TEST_CASE("the memory copy is measured, and needs a size") {
  const auto rate = copy_bandwidth(8 << 20, 2, true, true);
  REQUIRE(rate.ok());
  CHECK(*Result<double>(rate) > 0);
  CHECK_FALSE(copy_bandwidth(0, 1, true, false).ok());
}

}  // namespace
}  // namespace fxload
