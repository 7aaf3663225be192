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

TEST(KnownSizes, NameAnInvalidSpec) {
  known_sizes("strokes:classes=3");
  known_sizes("mnist:/no/such/folder");  // not opened
  known_sizes("folder:/no/such/folder");
  expect_error<UsageError>([] { known_sizes("stroke"); },
                           {"unknown data set 'stroke'; did you mean 'strokes'?"});
  expect_error<UsageError>([] { known_sizes("strokes:size=3"); }, {"strokes: size"});
  expect_error<UsageError>([] { known_sizes("cifar10"); }, {"cifar10:DIR"});
}

TEST(KnownSizes, AreThoseOfTheSpec) {
  const KnownSizes strokes = known_sizes("strokes:train=7");
  EXPECT_EQ(strokes.labels, 200);
  EXPECT_EQ(strokes.train_per_label, 7);
  EXPECT_EQ(strokes.test_per_label, 20);
  const KnownSizes mnist = known_sizes("mnist:/no/such/folder");
  EXPECT_EQ(mnist.labels, 10);
  EXPECT_FALSE(mnist.train_per_label.has_value());
  EXPECT_FALSE(known_sizes("folder:/no/such/folder").labels.has_value());
}

TEST(OpenByteDataset, FullNameHasAllOptions) {
  const TemporaryFolder folder;
  OpenOptions options;
  options.cache = folder.path();
  const ByteDataset data = open_byte_dataset("strokes:classes=2,train=1,test=1", options);
  EXPECT_EQ(data.name, "strokes:classes=2,train=1,test=1");
  EXPECT_EQ(data.full_name,
            "strokes:classes=2,train=1,test=1,size=20,strokes=3,ink=0.6,noise=0.1,jitter=1,seed=1");
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
