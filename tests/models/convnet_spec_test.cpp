// Good and bad descriptions of convolutional nets.
#include "models/convnet_spec.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/errors.h"

namespace renorm::models {
namespace {

using Kind = ConvnetItem::Kind;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// One word per item: "h x w : channels / stride" in full, or the pooling's word.
std::string written_out(const std::vector<ConvnetItem>& items) {
  std::string text;
  for (const ConvnetItem& item : items) {
    if (!text.empty()) text += ' ';
    if (item.kind == Kind::kConvolution) {
      text += std::to_string(item.kernel[0]) + "x" + std::to_string(item.kernel[1]) + ":" +
              std::to_string(item.channels) + "/" + std::to_string(item.stride);
    } else {
      text += item.kind == Kind::kMaxPool       ? "max"
              : item.kind == Kind::kAveragePool ? "avg"
              : item.kind == Kind::kFlat        ? "flat"
                                                : "pool";
    }
  }
  return text;
}

struct Good {
  const char* spec;
  const char* meaning;
};

TEST(ConvnetSpec, ReadsEveryForm) {
  const Good table[] = {
      {"32", "3x3:32/1 pool"},
      {"16/2", "3x3:16/2 pool"},
      {"5x5:32/2,pool", "5x5:32/2 pool"},
      {"1x1:128", "1x1:128/1 pool"},
      {"7x1:8,1x7:8", "7x1:8/1 1x7:8/1 pool"},
      {"8,max,16,avg,32", "3x3:8/1 max 3x3:16/1 avg 3x3:32/1 pool"},
      {"pool", "pool"},
      {"max", "max pool"},
      {"8,pool,16,3x3:4/2", "3x3:8/1 pool 1x1:16/1 3x3:4/2"},
      {"65536/8,15x15:1", "3x3:65536/8 15x15:1/1 pool"},
      {"0016", "3x3:16/1 pool"},
      {"flat", "flat"},
      {"16/2,flat,512", "3x3:16/2 flat 1x1:512/1"},
  };
  for (const Good& good : table) EXPECT_EQ(written_out(parse_convnet(good.spec)), good.meaning) << good.spec;
}

TEST(ConvnetSpec, RecipeHasEightNormalizedLayers) {
  EXPECT_EQ(written_out(parse_convnet(convnet_recipe())),
            "3x3:16/2 3x3:32/2 3x3:32/1 3x3:64/2 3x3:64/1 3x3:64/1 pool 1x1:128/1 1x1:128/1");
}

TEST(MlpSpec, IsAFlatItemAndDenseLayers) {
  EXPECT_EQ(written_out(parse_mlp("300,7")), "flat 1x1:300/1 1x1:7/1");
  EXPECT_EQ(written_out(parse_mlp(mlp_recipe())), "flat 1x1:512/1 1x1:512/1 1x1:512/1");
}

TEST(MlpSpec, BadWidthIsNamed) {
  EXPECT_EQ(message_of([] { parse_mlp("512,"); }),
            "mlp: width 2 must be a whole number from 1 to 65536, got ''");
  EXPECT_EQ(message_of([] { parse_mlp("16/2"); }),
            "mlp: width 1 must be a whole number from 1 to 65536, got '16/2'");
}

struct Bad {
  std::string spec;
  const char* message;
};

TEST(ConvnetSpec, BadItemIsNamedWithWhatWasExpected) {
  constexpr const char* kEmpty = " is empty; expected a list such as 16/2,32,max,64,pool,128";
  const Bad table[] = {
      {"", kEmpty},
      {"16,", kEmpty},
      {"16,,32", kEmpty},
      {"16,mx",
       "item 2 'mx' is not CHANNELS[/STRIDE], KxK:CHANNELS[/STRIDE], max, avg, pool or flat; did you mean "
       "'max'?"},
      {"poool", "did you mean 'pool'?"},
      {"16,dropout",
       "item 2 'dropout' is not CHANNELS[/STRIDE], KxK:CHANNELS[/STRIDE], max, avg, pool or flat"},
      {"-16", "item 1 '-16' is not CHANNELS"},
      {" 16", "item 1 ' 16' is not CHANNELS"},
      {"16 ", "item 1 '16 ': the number of channels must be a whole number from 1 to 65536, got '16 '"},
      {"0", "item 1 '0': the number of channels must be a whole number from 1 to 65536, got '0'"},
      {"65537", "channels must be a whole number from 1 to 65536"},
      {"99999999999999999999", "channels must be a whole number from 1 to 65536"},
      {"16.5", "channels must be a whole number"},
      {"16x3", "channels must be a whole number"},
      {"16/", "the stride must be a whole number from 1 to 8, got ''"},
      {"16/0", "the stride must be a whole number from 1 to 8, got '0'"},
      {"16/9", "item 1 '16/9': the stride must be a whole number from 1 to 8, got '9'"},
      {"16/2/2", "the stride must be a whole number from 1 to 8, got '2/2'"},
      {"3:16", "the kernel before ':' must be HEIGHTxWIDTH such as 5x5, got '3'"},
      {"3x3x3:16", "the kernel before ':' must be HEIGHTxWIDTH"},
      {"4x3:16", "each side of the kernel must be odd, got 4"},
      {"17x3:16", "each side of the kernel must be a whole number from 1 to 15, got '17'"},
      {"3x:16", "each side of the kernel must be a whole number from 1 to 15, got ''"},
      {"3x3:", "the number of channels must be a whole number from 1 to 65536, got ''"},
      {"3x3:16:2", "the number of channels must be a whole number"},
      {"8,pool,max", "item 3 'max' comes after 'pool' or 'flat', which leaves one pixel; remove one of them"},
      {"8,pool,8,flat", "item 4 'flat' comes after 'pool' or 'flat'"},
      {"8,flat,8,pool", "item 4 'pool' comes after 'pool' or 'flat'"},
      {"a\x1b[31m", "item 1 'a\\x1b[31m' is not"},
      {std::string("1\0", 2), "item 1 '1\\x00'"},
  };
  for (const Bad& bad : table) {
    const std::string message = message_of([&] { parse_convnet(bad.spec); });
    EXPECT_EQ(message.rfind("convnet: item ", 0), 0U) << bad.spec << " -> " << message;
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.spec << " -> " << message;
  }
}

TEST(ConvnetSpec, AThousandItemsAreTheMost) {
  std::string spec = "1";
  for (int i = 1; i < 1000; ++i) spec += ",1";
  EXPECT_EQ(parse_convnet(spec).size(), 1001U);
  EXPECT_EQ(message_of([&] { parse_convnet(spec + ",1"); }),
            "convnet: the spec must have at most 1000 items, got 1001");
}

TEST(ConvnetShapes, FollowStridesAndPools) {
  const auto shapes = convnet_shapes(parse_convnet("16/2,max,32/3,avg,64"), {3, 41, 28});
  const int64_t expected[][3] = {{16, 21, 14}, {16, 10, 7}, {32, 4, 3}, {32, 2, 1}, {64, 2, 1}, {64, 1, 1}};
  ASSERT_EQ(shapes.size(), 6U);
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(shapes[i].channels, expected[i][0]) << i;
    EXPECT_EQ(shapes[i].height, expected[i][1]) << i;
    EXPECT_EQ(shapes[i].width, expected[i][2]) << i;
  }
}

TEST(ConvnetShapes, ItemThatLeavesNothingOfTheImageIsNamed) {
  EXPECT_EQ(message_of([] {
              convnet_shapes(parse_convnet("16/8,32/8,max"), {1, 20, 20});
            }),
            "convnet: item 3 'max' cannot halve an image of 1x1 pixels (20x20 at the input); use fewer "
            "pools or strides, or larger images");
  EXPECT_NE(message_of([] { convnet_shapes(parse_convnet("avg,avg"), {1, 40, 2}); }), "");
  EXPECT_EQ(message_of([] { convnet_shapes(parse_convnet("16/8,32/8,64/8"), {1, 20, 20}); }), "");
}

TEST(ConvnetShapes, FlatMakesEveryPixelAChannel) {
  const auto shapes = convnet_shapes(parse_convnet("16/2,flat,10"), {3, 41, 28});
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_EQ(shapes[1].channels, 16 * 21 * 14);
  EXPECT_EQ(shapes[1].height, 1);
  EXPECT_EQ(shapes[2].channels, 10);
}

TEST(ConvnetShapes, TooLargeImagesCannotBeFlattened) {
  EXPECT_EQ(message_of([] {
              convnet_shapes(parse_mlp("8"), {65536, 65536, 65536});
            }),
            "mlp: the input has 281474976710656 values, at most 1073741824 are allowed; use smaller images");
}

TEST(ConvnetShapes, TooManyWeightsAreRefused) {
  const auto items = parse_convnet("16,15x15:65536,15x15:65536");
  EXPECT_EQ(
      message_of([&] {
        convnet_shapes(items, {1, 20, 20});
      }),
      "convnet: item 3 '15x15:65536' brings the net to 966603571344 weights, at most 1073741824 are allowed; "
      "use fewer channels");
}

TEST(ConvnetSyntax, ShowsTheRecipe) { EXPECT_NE(convnet_syntax().find(convnet_recipe()), std::string::npos); }

}  // namespace
}  // namespace renorm::models
