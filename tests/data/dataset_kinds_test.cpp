#include "data/dataset_kinds.h"

#include "base/errors.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

TEST(DatasetKinds, EveryKindHasHelp) {
  for (const DatasetKind& kind : dataset_kinds()) {
    EXPECT_EQ(kind.usage.rfind(kind.name, 0), 0U);
    EXPECT_FALSE(kind.help.empty());
  }
  EXPECT_EQ(dataset_kinds().size(), 6U);
}

TEST(DatasetKinds, FormsListEveryKind) {
  EXPECT_EQ(dataset_forms(),
            "strokes[:OPTIONS], mnist:DIR, fashion-mnist:DIR, cifar10:DIR, cifar100:DIR or folder:DIR");
}

TEST(CheckDatasetSpec, NamesWhatIsWrong) {
  check_dataset_spec("strokes:classes=3");
  check_dataset_spec("mnist:/no/such/folder");  // not opened
  check_dataset_spec("folder:/no/such/folder");
  expect_error<UsageError>([] { check_dataset_spec("stroke"); },
                           {"unknown data set 'stroke'; did you mean 'strokes'?"});
  expect_error<UsageError>([] { check_dataset_spec("strokes:size=3"); }, {"strokes: size"});
  expect_error<UsageError>([] { check_dataset_spec("cifar10"); }, {"cifar10:DIR"});
}

TEST(LabelCount, FollowsFromTheSpecOrTheFolder) {
  EXPECT_EQ(label_count("strokes", {}), 200);
  EXPECT_EQ(label_count("strokes:classes=7", {}), 7);
  for (const char* spec : {"mnist:d", "fashion-mnist:d", "cifar10:d"}) EXPECT_EQ(label_count(spec, {}), 10);
  EXPECT_EQ(label_count("cifar100:d", {}), 100);
  const TemporaryFolder folder;
  for (const char* name : {"train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "val/a/1.jpg"}) {
    folder.write(name, "");
  }
  EXPECT_EQ(label_count("folder:" + folder.path(), {}), 3);
  expect_error<MissingInputError>([] { label_count("folder:/no/such", {}); }, {"/no/such: no such folder"});
  expect_error<UsageError>([] { label_count("mnits:d", {}); }, {"did you mean 'mnist'?"});
}

}  // namespace
}  // namespace renorm::data::testing
