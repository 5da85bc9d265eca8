#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/kernels.h"

namespace needle {
namespace {

TEST(Isa, GenericIsAlwaysThereAndFirst) {
  ASSERT_FALSE(SupportedIsas().empty());
  EXPECT_EQ(SupportedIsas().front(), Isa::kGeneric);
}

TEST(Isa, EachSupportedSetIsChosenByItsName) {
  for (const Isa isa : SupportedIsas()) {
    const Result<Isa> chosen = ChooseIsa(Name(isa));
    ASSERT_TRUE(chosen.ok()) << chosen.error().message();
    EXPECT_EQ(*chosen, isa);
  }
}

TEST(Isa, NoNameMeansTheFastest) {
  const Result<Isa> chosen = ChooseIsa("");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, SupportedIsas().back());
}

TEST(Isa, AnUnknownNameIsASentenceThatNamesIt) {
  const Result<Isa> chosen = ChooseIsa("sse9");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code(), Code::kInvalidArgument);
  EXPECT_NE(chosen.error().message().find("\"sse9\""), std::string::npos);
  EXPECT_NE(chosen.error().message().find("generic"), std::string::npos);
}

TEST(Isa, ASetOfAnotherMachineIsRefusedByName) {
  const auto isas = SupportedIsas();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kNeon}) {
    if (std::find(isas.begin(), isas.end(), isa) != isas.end()) continue;
    const Result<Isa> chosen = ChooseIsa(Name(isa));
    ASSERT_FALSE(chosen.ok());
    EXPECT_NE(chosen.error().message().find("lacks"), std::string::npos);
  }
}

TEST(Kernels, EachTableSaysWhichSetItIsFor) {
  for (const Isa isa : SupportedIsas()) EXPECT_EQ(KernelsFor(isa).isa, isa) << Name(isa);
}

TEST(Kernels, TheActiveTableIsTheOneThatTheEnvironmentAsksFor) {
  const char* wanted = std::getenv("NEEDLE_ISA");
  const std::string_view name =
      wanted == nullptr || *wanted == 0 ? Name(SupportedIsas().back()) : std::string_view(wanted);
  EXPECT_EQ(Name(BestKernels().isa), name);
}

}  // namespace
}  // namespace needle
