#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/view.h"

namespace needle {
namespace {

TEST(Tensor, KeepsFloatsThroughEveryFloatingType) {
  const std::vector<float> values = {0.0f, 1.0f, -2.5f, 0.25f, 1024.0f, -0.0f};
  const Tensor t = Tensor::FromFloats({2, 3}, values);
  EXPECT_EQ(t.ToFloats(), values);
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF64}) {
    const Tensor as = t.As(type);
    EXPECT_EQ(as.dtype, type);
    EXPECT_EQ(as.shape, t.shape);
    EXPECT_EQ(as.bytes.size(), values.size() * SizeOf(type));
    EXPECT_EQ(as.ToFloats(), values) << Name(type);
  }
}

TEST(Tensor, RoundsWhenTheTypeIsNarrower) {
  const Tensor t = Tensor::FromFloats({2}, {1.0f + 0x1p-11f, 70000.0f});
  EXPECT_EQ(t.As(DType::kF16).ToFloats(), (std::vector<float>{1.0f, INFINITY}));
  EXPECT_EQ(t.As(DType::kBF16).ToFloats(), (std::vector<float>{1.0f, 70144.0f}));
}

TEST(Tensor, ScalarsAndEmptyTensorsHaveTheirSizes) {
  EXPECT_EQ(Tensor(DType::kF32, {}).size(), 1u);
  EXPECT_EQ(Tensor(DType::kF32, {3, 0, 2}).size(), 0u);
  EXPECT_EQ(Tensor::FromFloats({0}, {}).bytes.size(), 0u);
  EXPECT_EQ(ToText({27, 512, 4}), "[27, 512, 4]");
  EXPECT_EQ(ToText({}), "[]");
}

TEST(MatView, CutsRowsAndColumnsOutOfTheSameMemory) {
  std::vector<int> memory(12);
  for (int i = 0; i < 12; ++i) memory[static_cast<size_t>(i)] = i;
  const MatView<int> all(memory.data(), 3, 4);
  const MatView<int> part = all.Rows(1, 2).Cols(1, 2);
  EXPECT_EQ(part.rows(), 2u);
  EXPECT_EQ(part.cols(), 2u);
  EXPECT_EQ(part.stride(), 4u);
  EXPECT_EQ(part(0, 0), 5);
  EXPECT_EQ(part(1, 1), 10);
  part(1, 0) = 90;
  EXPECT_EQ(memory[9], 90);
  const MatView<const int> reader = part;
  EXPECT_EQ(reader.RowSpan(1)[0], 90);
  EXPECT_TRUE(MatView<int>().empty());
}

}  // namespace
}  // namespace needle
