#include "base/errors.h"

#include <gtest/gtest.h>

#include <exception>
#include <string>
#include <system_error>

#include "base/address_space.h"

namespace renorm::testing {
namespace {

// 76 is divergence and 70 a defect: a caller can tell them apart, also through a child process.
TEST(ThrowForExitCode, GivesTheErrorOfTheCode) {
  EXPECT_THROW(throw_for_exit_code(2, ""), UsageError);
  EXPECT_THROW(throw_for_exit_code(65, ""), DataError);
  EXPECT_THROW(throw_for_exit_code(66, ""), MissingInputError);
  EXPECT_THROW(throw_for_exit_code(73, ""), OutputError);
  EXPECT_THROW(throw_for_exit_code(74, ""), IoError);
  EXPECT_THROW(throw_for_exit_code(75, ""), Interrupted);
  EXPECT_THROW(throw_for_exit_code(76, ""), NonFiniteError);
  EXPECT_THROW(throw_for_exit_code(139, ""), IoError);
}

TEST(ThrowForExitCode, KeepsTheWordsOfADefect) {
  try {
    throw_for_exit_code(70, "a sentence");
    ADD_FAILURE();
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "a sentence");
  }
}

TEST(FailureOf, ExplainsAThreadThatCannotStart) {
  const auto again = std::make_error_code(std::errc::resource_unavailable_try_again);
  const Failure failure = failure_of(std::make_exception_ptr(std::system_error(again)));
  EXPECT_EQ(failure.exit_code, 70);
  EXPECT_NE(failure.message.find("fewer --threads"), std::string::npos) << failure.message;
}

TEST(IsOutOfMemory, KnowsTheErrorOfLibTorchsAllocator) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(
      is_out_of_memory(std::runtime_error("[enforce fail] DefaultCPUAllocator: can't allocate memory")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("could not create a primitive descriptor iterator")));
}

}  // namespace
}  // namespace renorm::testing
