#include "dist/group.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "ranks.h"

namespace renorm::dist {
namespace {

using testing::Ranks;
using testing::TemporaryFolder;

template <typename Error>
bool is(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {
  }
  return false;
}

TEST(Group, SumsWithTheSameBitsEverywhere) {
  Ranks ranks(3);
  torch::manual_seed(1);
  const std::vector<torch::Tensor> own = {torch::randn({1000}), torch::randn({1000}), torch::randn({1000})};
  std::vector<torch::Tensor> sums = {own[0].clone(), own[1].clone(), own[2].clone()};
  ranks.in_parallel([&](int rank) { ranks.group(rank).sum(sums[rank]); });
  EXPECT_TRUE(torch::equal(sums[0], sums[1]));
  EXPECT_TRUE(torch::equal(sums[0], sums[2]));
  EXPECT_TRUE(torch::allclose(sums[0], own[0] + own[1] + own[2], 1e-6, 1e-6));
  EXPECT_EQ(ranks.group(1).traffic().bytes, 4000);
}

TEST(Group, SumsInTheBackgroundInOrder) {
  Ranks ranks(2);
  std::vector<torch::Tensor> a = {torch::ones({5}), torch::ones({5})};
  std::vector<torch::Tensor> b = {torch::ones({7}, torch::kDouble), torch::ones({7}, torch::kDouble)};
  ranks.in_parallel([&](int rank) {
    const Group::Wait first = ranks.group(rank).start_sum(a[rank]);
    const Group::Wait second = ranks.group(rank).start_sum(b[rank]);
    second();
    first();
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(a[rank].sum().item<double>(), 10.0);
    EXPECT_EQ(b[rank].sum().item<double>(), 14.0);
  }
}

TEST(Group, RefusesToSumAStridedTensor) {
  for (const int size : {2, 3}) {
    Ranks ranks(size);
    const auto sum = [&](int rank) { ranks.group(rank).sum(torch::ones({4, 6}).t()); };
    for (const std::exception_ptr& error : ranks.outcomes(sum)) EXPECT_TRUE(is<c10::Error>(error));
    EXPECT_FALSE(ranks.group(0).is_lost());
  }
}

TEST(Group, GathersAndBroadcastsTexts) {
  Ranks ranks(3);
  const std::vector<std::string> texts = {"", std::string("\0\xff", 2), "three"};
  ranks.in_parallel([&](int rank) {
    EXPECT_EQ(ranks.group(rank).gather(texts[rank]), texts);
    EXPECT_EQ(ranks.group(rank).broadcast(rank == 0 ? "from rank 0" : "other"), "from rank 0");
    EXPECT_EQ(ranks.group(rank).broadcast(""), "");
  });
}

TEST(Group, WaitsForTheSlowest) {
  Ranks ranks(3);
  std::atomic<int> done{0};
  ranks.in_parallel([&](int rank) {
    ranks.group(rank).together([&] {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ++done;
    });
    EXPECT_EQ(done, 3);
  });
}

// The timeout is for an answer, not for the work.
TEST(Group, WorkMayTakeLongerThanTheTimeout) {
  Group::Options options;
  options.timeout = std::chrono::milliseconds(2'000);
  Ranks ranks(2, options);
  ranks.in_parallel([&](int rank) {
    ranks.group(rank).together([&] {
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3'500));
    });
  });
}

TEST(Group, AnErrorOfOneIsAnErrorOfAll) {
  Ranks ranks(3);
  const std::vector<std::exception_ptr> errors = ranks.outcomes([&](int rank) {
    ranks.group(rank).together([&] {
      if (rank == 2) throw DataError("image 7 is damaged");
    });
  });
  ASSERT_TRUE(is<DataError>(errors[0]));
  const std::string message = failure_of(errors[0]).message;
  EXPECT_EQ(message.find("rank 2 on '"), 0U) << message;
  EXPECT_NE(message.find("image 7 is damaged"), std::string::npos) << message;
  EXPECT_TRUE(is<ReportedElsewhere>(errors[1]));
  EXPECT_TRUE(is<ReportedElsewhere>(errors[2]));
  // The group can still be used, for example to save.
  ranks.in_parallel([&](int rank) { ranks.group(rank).together([] {}); });
}

TEST(Group, ALostRankEndsTheOthers) {
  Group::Options options;
  options.timeout = std::chrono::milliseconds(2'000);
  Ranks ranks(3, options);
  const std::vector<std::exception_ptr> errors = ranks.outcomes([&](int rank) {
    if (rank == 1) return;  // never answers
    ranks.group(rank).sum(torch::ones({10}));
  });
  EXPECT_TRUE(is<WorkerLost>(errors[0]));
  EXPECT_TRUE(is<WorkerLost>(errors[2]));
  EXPECT_TRUE(ranks.group(0).is_lost());
}

TEST(Group, NamesTheRanksThatDoNotCome) {
  const TemporaryFolder folder;
  Launch launch;
  launch.size = launch.local_size = 3;
  launch.job = "alone";
  Group::Options options;
  options.timeout = std::chrono::milliseconds(200);
  const std::string message = testing::message_of<Interrupted>(
      [&] { Group(launch, rendezvous_of(launch, "", folder.path("run")), options); });
  testing::expect_parts(message, {"ranks 1, 2 of 3 did not come"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("run")));  // nothing is left behind
}

TEST(Group, RefusesAPlaceThatWasUsedBefore) {
  const TemporaryFolder folder;
  const MeetingPlace first(folder.path("place"), 1);
  const std::string message =
      testing::message_of<OutputError>([&] { MeetingPlace(folder.path("place"), 1); });
  testing::expect_parts(message, {"rank-1' exists already", "delete the folder"});
}

}  // namespace
}  // namespace renorm::dist
