#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/str_cat.h"
#include "job/loss_setup.h"
#include "job/scalar_value.h"
#include "yaml-cpp/yaml.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr LossBatchShape kShape{8, 16, 0};
constexpr LossBatchShape kStale{8, 16, 1};
constexpr CorrectionSpec kTis2{CorrectionKind::kTis, 2.0, 0.0};

LossSpec Resolved(const job::v1::Loss& keys, const LossBatchShape& shape = kShape) {
  const auto result = ResolveLoss(keys, shape);
  if (const auto* errors = std::get_if<std::vector<LossError>>(&result)) {
    for (const LossError& error : *errors) {
      ADD_FAILURE() << error.field << ": " << error.message;
    }
    return {};
  }
  return std::get<LossSpec>(result);
}

std::vector<LossError> Errors(const job::v1::Loss& keys, const LossBatchShape& shape = kShape) {
  const auto result = ResolveLoss(keys, shape);
  const auto* errors = std::get_if<std::vector<LossError>>(&result);
  return errors ? *errors : std::vector<LossError>{};
}

job::v1::Loss Preset(const char* name) {
  job::v1::Loss keys;
  keys.set_preset(name);
  return keys;
}

TEST(LossSpec, PresetsExpandToTheDocumentedLines) {
  const struct {
    const char* name;
    const char* line;
  } cases[] = {
      {"grpo",
       "{advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.2}, "
       "correction: {kind: none}, kl: {kind: none}, aggregate: sequence_mean}"},
      {"dr_grpo",
       "{advantage: dr_grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.2}, "
       "correction: {kind: none}, kl: {kind: none}, aggregate: sequence_sum_norm}"},
      {"dapo",
       "{advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.28}, "
       "correction: {kind: none}, kl: {kind: none}, aggregate: token_mean}"},
      {"rloo",
       "{advantage: rloo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.2}, "
       "correction: {kind: none}, kl: {kind: none}, aggregate: sequence_sum_norm}"},
      {"reinforce_pp",
       "{advantage: reinforce_pp, ratio: token, anchor: proximal, clip: {low: 0.2, high: "
       "0.2}, correction: {kind: none}, kl: {kind: none}, aggregate: token_mean}"},
      {"gspo",
       "{advantage: grpo, ratio: sequence, anchor: proximal, clip: {low: 0.0003, high: "
       "0.0004}, correction: {kind: none}, kl: {kind: none}, aggregate: sequence_mean}"},
      {"cispo",
       "{advantage: grpo, surrogate: cispo, ratio: token, anchor: behavior, clip: {low: 1.0, "
       "high: 1.0}, correction: {kind: none}, kl: {kind: none}, aggregate: token_mean}"},
      {"decoupled_ppo",
       "{advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.2}, "
       "correction: {kind: mask, cap: 5.0, low: 0.0}, kl: {kind: none}, aggregate: token_mean}"},
      {"icepop",
       "{advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.2}, "
       "correction: {kind: mask, cap: 5.0, low: 0.5}, kl: {kind: none}, aggregate: sequence_mean}"},
  };
  ASSERT_EQ(LossPresets().size(), std::size(cases));
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(cases[i].name);
    EXPECT_EQ(LossPresets()[i].name, cases[i].name);
    EXPECT_EQ(DescribeLoss(Resolved(Preset(cases[i].name))), cases[i].line);
  }
}

TEST(LossSpec, IsGrpoWhenNothingIsWritten) { EXPECT_EQ(Resolved({}), *ExpandPreset("grpo")); }

TEST(LossSpec, UnknownPresetListsTheValidOnes) {
  const absl::Status status = ExpandPreset("gpro\n").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("'gpro?' is not one of grpo, dr_grpo, dapo"));
}

TEST(LossSpec, OverridesLieOverThePreset) {
  job::v1::Loss keys = Preset("grpo");
  keys.mutable_clip()->set_high(0.28);
  keys.mutable_clip()->set_dual(3.0);
  keys.mutable_correction()->set_kind("tis");
  keys.mutable_kl()->set_kind("k3");
  keys.mutable_kl()->set_coef(0.001);
  keys.set_aggregate("token_mean");
  keys.set_entropy_coef(0.01);
  EXPECT_EQ(DescribeLoss(Resolved(keys)),
            "{advantage: grpo, ratio: token, anchor: proximal, clip: {low: 0.2, high: 0.28, "
            "dual: 3.0}, correction: {kind: tis, cap: 2.0}, kl: {kind: k3, coef: 0.001}, "
            "aggregate: token_mean, entropy_coef: 0.01}");
}

TEST(LossSpec, CorrectionKindKeepsThePresetsBoundsOnlyWhenItIsThePresets) {
  job::v1::Loss keys = Preset("decoupled_ppo");
  keys.mutable_correction()->set_kind("mask");
  EXPECT_EQ(Resolved(keys).correction, (CorrectionSpec{CorrectionKind::kMask, 5.0, 0.0}));
  keys.set_preset("grpo");
  EXPECT_EQ(Resolved(keys).correction, (CorrectionSpec{CorrectionKind::kMask, 5.0, 0.5}));
  keys.mutable_correction()->set_kind("seq_tis");
  keys.mutable_correction()->set_cap(3.0);
  EXPECT_EQ(Resolved(keys).correction, (CorrectionSpec{CorrectionKind::kSeqTis, 3.0, 0.0}));
}

TEST(LossSpec, StaleSamplesAreCorrectedUnlessTheJobSaysOtherwise) {
  for (const LossPreset& preset : LossPresets()) {
    SCOPED_TRACE(preset.name);
    const LossSpec fresh = *ExpandPreset(preset.name);
    const job::v1::Loss keys = Preset(preset.name.data());
    EXPECT_EQ(Resolved(keys), fresh);
    LossSpec stale = fresh;
    if (fresh.anchor == AnchorKind::kProximal && fresh.correction.kind == CorrectionKind::kNone) {
      stale.correction = kTis2;
    }
    EXPECT_EQ(Resolved(keys, kStale), stale);
    EXPECT_EQ(UncorrectedStaleness(stale, 1), std::nullopt);
  }
  EXPECT_EQ(Resolved(Preset("grpo"), kStale).correction, kTis2);
  EXPECT_EQ(Resolved(Preset("gspo"), kStale).correction, kTis2);
  EXPECT_EQ(Resolved(Preset("cispo"), kStale).correction, CorrectionSpec{});
  EXPECT_EQ(Resolved(Preset("icepop"), kStale).correction.kind, CorrectionKind::kMask);
}

TEST(LossSpec, TheDefaultCorrectionGivesWayToWhatIsWritten) {
  job::v1::Loss keys;
  keys.mutable_correction()->set_cap(3);
  EXPECT_EQ(Resolved(keys, kStale).correction, (CorrectionSpec{CorrectionKind::kTis, 3, 0}));
  keys.mutable_correction()->set_kind("mask");
  EXPECT_EQ(Resolved(keys, kStale).correction, (CorrectionSpec{CorrectionKind::kMask, 3, .5}));
  keys = {};
  keys.mutable_correction()->set_kind("none");
  EXPECT_EQ(Resolved(keys, kStale).correction, CorrectionSpec{});
  keys.set_preset("icepop");
  EXPECT_EQ(Resolved(keys, kStale).correction, CorrectionSpec{});
  keys = {};
  keys.set_anchor("behavior");
  EXPECT_EQ(Resolved(keys, kStale).correction, CorrectionSpec{});
  keys.set_anchor("none");
  EXPECT_EQ(Resolved(keys, kStale).correction, CorrectionSpec{});
}

TEST(LossSpec, StaleSamplesWithoutACorrectionAreSaidAloud) {
  LossSpec spec = *ExpandPreset("grpo");
  EXPECT_EQ(UncorrectedStaleness(spec, 0), std::nullopt);
  EXPECT_EQ(UncorrectedStaleness(spec, 1).value_or(""),
            "samples up to 1 version old are trained without an importance weight: "
            "loss.correction.kind is none: set loss.correction to {kind: tis, cap: 2.0}");
  EXPECT_THAT(UncorrectedStaleness(spec, 3).value_or(""), HasSubstr("up to 3 versions old"));
  spec.anchor = AnchorKind::kBehavior;
  EXPECT_EQ(UncorrectedStaleness(spec, 1), std::nullopt);
  spec.anchor = AnchorKind::kNone;
  EXPECT_THAT(UncorrectedStaleness(spec, 1).value_or(""), HasSubstr("loss.anchor is none"));
}

TEST(LossSpec, KlCoefficientZeroNeedsNoReference) {
  job::v1::Loss keys;
  keys.mutable_kl()->set_kind("k3");
  keys.mutable_kl()->set_coef(0.0);
  EXPECT_FALSE(Resolved(keys).NeedsReference());
  keys.mutable_kl()->set_coef(0.1);
  EXPECT_TRUE(Resolved(keys).NeedsReference());
}

TEST(LossSpec, PlainReinforceHasNoClip) {
  job::v1::Loss keys = Preset("rloo");
  keys.set_anchor("none");
  const LossSpec spec = Resolved(keys);
  EXPECT_FALSE(spec.NeedsProximal());
  EXPECT_FALSE(spec.NeedsBehavior());
  EXPECT_EQ(DescribeLoss(spec),
            "{advantage: rloo, anchor: none, correction: {kind: none}, kl: {kind: none}, "
            "aggregate: sequence_sum_norm}");
}

void Read(const YAML::Node& block, google::protobuf::Message& out) {
  for (const auto& entry : block) {
    const auto* field = out.GetDescriptor()->FindFieldByName(entry.first.Scalar());
    ASSERT_NE(field, nullptr) << entry.first.Scalar();
    if (entry.second.IsSequence()) {
      for (const auto& item : entry.second)
        Read(item, *out.GetReflection()->AddMessage(&out, field));
    } else if (entry.second.IsMap()) {
      Read(entry.second, *out.GetReflection()->MutableMessage(&out, field));
    } else {
      EXPECT_TRUE(StoreScalar(entry.second.Scalar(), *field, out)) << entry.first.Scalar();
    }
  }
}

job::v1::Loss FromYaml(const std::string& line) {
  job::v1::Loss out;
  Read(YAML::Load(line), out);
  return out;
}

TEST(LossSpec, PrintedLineReadsBackAsTheSameLoss) {
  std::vector<LossSpec> specs;
  for (const LossPreset& preset : LossPresets()) {
    specs.push_back(*ExpandPreset(preset.name));
    specs.push_back(*ExpandPreset(preset.name));
    specs.back().clip = {1e-7, 1.0 / 3, std::nullopt};
    specs.back().kl = {KlKind::kK2, 1e-9};
    specs.back().entropy_coef = 0.1;
  }
  specs.emplace_back().anchor = AnchorKind::kNone;
  specs.emplace_back().clip.dual = 3;
  specs.emplace_back().correction = {CorrectionKind::kTis, 1e6, 0.25};
  specs.emplace_back().duplicate = true;
  specs.emplace_back().turn_entropy_share = 0.8;
  specs.back().entropy_control = {0.25, 1};
  specs.back().token_weights = {{"<tool_call>", "</tool_call>", 2}, {"\"a\\\n: é{", "", 0.5}};
  for (const LossSpec& spec : specs) {
    SCOPED_TRACE(DescribeLoss(spec));
    EXPECT_EQ(Resolved(FromYaml(DescribeLoss(spec))), spec);
    EXPECT_EQ(Resolved(FromYaml(DescribeLoss(spec)), kStale), spec);
  }
}

struct RefusedLoss {
  const char* name;
  job::v1::Loss keys;
  const char* field;
  const char* message;
};

job::v1::Loss With(void (*change)(job::v1::Loss&)) {
  job::v1::Loss keys;
  change(keys);
  return keys;
}

std::vector<RefusedLoss> RefusedCases() {
  return {
      {"cispo and tis",
       With([](auto& o) { o.set_preset("cispo"), o.mutable_correction()->set_kind("tis"); }),
       "loss.correction.kind", "two importance corrections"},
      {"behavior and tis",
       With([](auto& o) { o.set_anchor("behavior"), o.mutable_correction()->set_kind("tis"); }),
       "loss.correction.kind", "two importance corrections"},
      {"decoupled on behavior",
       With([](auto& o) { o.set_preset("decoupled_ppo"), o.set_anchor("behavior"); }),
       "loss.correction.kind", "two importance corrections"},
      {"tis without anchor",
       With([](auto& o) { o.set_anchor("none"), o.mutable_correction()->set_kind("tis"); }),
       "loss.correction.kind", "anchor is none: set anchor proximal"},
      {"clip without anchor",
       With([](auto& o) { o.set_anchor("none"), o.mutable_clip()->set_high(0.3); }),
       "loss.clip.high", "no ratio to clip"},
      {"sequence without anchor", With([](auto& o) { o.set_preset("gspo"), o.set_anchor("none"); }),
       "loss.ratio", "needs an anchor"},
      {"cispo without anchor", With([](auto& o) { o.set_preset("cispo"), o.set_anchor("none"); }),
       "loss.surrogate", "needs an anchor"},
      {"dual in cispo", With([](auto& o) { o.set_preset("cispo"), o.mutable_clip()->set_dual(3); }),
       "loss.clip.dual", "needs surrogate ppo"},
      {"clip low 0", With([](auto& o) { o.mutable_clip()->set_low(0); }), "loss.clip.low",
       "0.0 is outside (0.0, 1.0]"},
      {"clip low above 1", With([](auto& o) { o.mutable_clip()->set_low(1.5); }), "loss.clip.low",
       "1.5 is outside (0.0, 1.0]"},
      {"clip high negative", With([](auto& o) { o.mutable_clip()->set_high(-0.1); }),
       "loss.clip.high", "-0.1 is outside"},
      {"clip high nan",
       With([](auto& o) { o.mutable_clip()->set_high(std::numeric_limits<double>::quiet_NaN()); }),
       "loss.clip.high", "nan is outside"},
      {"dual 1", With([](auto& o) { o.mutable_clip()->set_dual(1); }), "loss.clip.dual",
       "1.0 is outside"},
      {"cap below 1", With([](auto& o) {
         o.mutable_correction()->set_kind("tis"), o.mutable_correction()->set_cap(0.5);
       }),
       "loss.correction.cap", "0.5 is outside [1.0, "},
      {"low above 1", With([](auto& o) {
         o.mutable_correction()->set_kind("mask"), o.mutable_correction()->set_low(1.1);
       }),
       "loss.correction.low", "1.1 is outside [0.0, 1.0]"},
      {"cap without kind", With([](auto& o) { o.mutable_correction()->set_cap(2); }),
       "loss.correction.cap", "correction.kind is none"},
      {"kl coef without kind", With([](auto& o) { o.mutable_kl()->set_coef(0.1); }), "loss.kl.coef",
       "kl.kind is none: set kind k3"},
      {"kl kind without coef", With([](auto& o) { o.mutable_kl()->set_kind("k3"); }),
       "loss.kl.coef", "kl.kind k3 needs a coefficient"},
      {"kl coef negative",
       With([](auto& o) { o.mutable_kl()->set_kind("k3"), o.mutable_kl()->set_coef(-1); }),
       "loss.kl.coef", "-1.0 is outside"},
      {"entropy negative", With([](auto& o) { o.set_entropy_coef(-1); }), "loss.entropy_coef",
       "-1.0 is outside"},
      {"turn share 0", With([](auto& o) { o.set_turn_entropy_share(0); }),
       "loss.turn_entropy_share", "0.0 is outside (0.0, 1.0]"},
      {"turn share above 1", With([](auto& o) { o.set_turn_entropy_share(1.1); }),
       "loss.turn_entropy_share", "1.1 is outside"},
      {"entropy bounds reversed", With([](auto& o) {
         o.mutable_entropy_control()->set_low(0.5), o.mutable_entropy_control()->set_high(0.4);
       }),
       "loss.entropy_control.high", "0.4 is below entropy_control.low 0.5"},
      {"entropy bound nan", With([](auto& o) {
         o.mutable_entropy_control()->set_low(std::numeric_limits<double>::quiet_NaN());
       }),
       "loss.entropy_control.low", "nan is outside"},
      {"token weight negative", With([](auto& o) {
         auto& part = *o.add_token_weights();
         part.set_begin("<c>"), part.set_weight(-1);
       }),
       "loss.token_weights.0.weight", "-1.0 is outside [0.0, 100.0]"},
      {"token weight without a begin", With([](auto& o) { o.add_token_weights(); }),
       "loss.token_weights.0.begin", "empty"},
      {"token weights that begin alike", With([](auto& o) {
         o.add_token_weights()->set_begin("<c>"), o.add_token_weights()->set_begin("<c>");
       }),
       "loss.token_weights.1.begin", "'<c>' begins an earlier part of the list too"},
      {"unknown advantage", With([](auto& o) { o.set_advantage("gae"); }), "loss.advantage",
       "'gae' is not one of grpo, dr_grpo, rloo"},
      {"unknown preset", With([](auto& o) { o.set_preset("ppo2"); }), "loss.preset",
       "'ppo2' is not one of grpo"},
      {"unknown correction", With([](auto& o) { o.mutable_correction()->set_kind("tiss"); }),
       "loss.correction.kind", "'tiss' is not one of none, tis, mask, seq_tis"},
  };
}

TEST(LossSpec, RefusesContradictionsByKey) {
  for (const RefusedLoss& refused : RefusedCases()) {
    SCOPED_TRACE(refused.name);
    const std::vector<LossError> errors = Errors(refused.keys);
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].field, refused.field);
    EXPECT_THAT(errors[0].message, HasSubstr(refused.message));
  }
}

TEST(LossSpec, ReportsEveryFaultAtOnce) {
  job::v1::Loss keys;
  keys.set_ratio("word");
  keys.mutable_clip()->set_low(-1);
  keys.mutable_kl()->set_kind("k9");
  EXPECT_EQ(Errors(keys).size(), 3u);
}

TEST(LossSpec, RefusesGroupAdvantageOfOneSample) {
  for (const char* preset : {"grpo", "dr_grpo", "dapo", "rloo", "gspo"}) {
    SCOPED_TRACE(preset);
    const std::vector<LossError> errors = Errors(Preset(preset), {1, 16});
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].field, "loss.advantage");
    EXPECT_THAT(errors[0].message, HasSubstr("group_size is 1: set group_size to at least 2"));
    EXPECT_THAT(Errors(Preset(preset), {2, 1}), IsEmpty());
  }
}

TEST(LossSpec, BatchAdvantageOfOneSampleNeedsTwoGroups) {
  EXPECT_THAT(Errors(Preset("reinforce_pp"), {1, 2}), IsEmpty());
  EXPECT_EQ(Errors(Preset("reinforce_pp"), {1, 1}).size(), 1u);
}

}  // namespace
}  // namespace freshet
