// A linker may drop a file that only registers a kernel, so the test queries the dispatcher.
#include <ATen/core/dispatch/Dispatcher.h>

#include "tensors.h"

namespace renorm::test {
namespace {

class Registration : public ::testing::TestWithParam<const char*> {};

TEST_P(Registration, HasAKernelForEveryKey) {
  const auto op = c10::Dispatcher::singleton().findSchema({GetParam(), ""});
  ASSERT_TRUE(op.has_value());
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::Autograd, c10::DispatchKey::Meta,
                         c10::DispatchKey::CompositeExplicitAutograd}) {
    EXPECT_TRUE(op->hasKernelForDispatchKey(key)) << c10::toString(key);
  }
}

TEST_P(Registration, SchemaChangesNoArgumentAndAliasesNone) {
  const auto op = c10::Dispatcher::singleton().findSchema({GetParam(), ""});
  ASSERT_TRUE(op.has_value());
  for (const auto& argument : op->schema().arguments()) EXPECT_EQ(argument.alias_info(), nullptr);
  for (const auto& result : op->schema().returns()) EXPECT_EQ(result.alias_info(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Operators, Registration,
                         ::testing::Values("renorm::batch_renorm", "renorm::batch_renorm_step",
                                           "renorm::batch_renorm_backward", "renorm::batch_renorm_inference",
                                           "renorm::batch_renorm_statistics", "renorm::batch_renorm_merge",
                                           "renorm::batch_renorm_apply", "renorm::batch_renorm_backward_sums",
                                           "renorm::batch_renorm_backward_apply"));

TEST(Registration, CountingClipsChangesOneArgument) {
  const auto op = c10::Dispatcher::singleton().findSchema({"renorm::count_clips_", ""});
  ASSERT_TRUE(op.has_value());
  for (const auto key :
       {c10::DispatchKey::CPU, c10::DispatchKey::Meta, c10::DispatchKey::CompositeExplicitAutograd}) {
    EXPECT_TRUE(op->hasKernelForDispatchKey(key)) << c10::toString(key);
  }
  const auto& arguments = op->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) EXPECT_EQ(arguments[i].alias_info() != nullptr, i == 0) << i;
}

TEST(Registration, MovingAveragesChangesThreeArguments) {
  const auto op = c10::Dispatcher::singleton().findSchema({"renorm::move_averages_", ""});
  ASSERT_TRUE(op.has_value());
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::Meta,
                         c10::DispatchKey::CompositeExplicitAutograd}) {
    EXPECT_TRUE(op->hasKernelForDispatchKey(key)) << c10::toString(key);
  }
  const auto& arguments = op->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    EXPECT_EQ(arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite(), i < 3) << i;
  }
}

}  // namespace
}  // namespace renorm::test
