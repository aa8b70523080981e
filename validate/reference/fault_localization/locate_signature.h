#pragma once

#include <cstddef>
#include <string>

#include "validate/reference/dump/dump.h"

namespace llm {

/// The shape of an error: what a wrong matrix has to do with the right one.
enum class SignatureKind {
  kNone,             ///< differs in no way known here
  kOtherTap,         ///< the values of another op of the layer (locate())
  kNonFinite,        ///< NaN or Inf
  kZero,             ///< all zero
  kScale,            ///< the right values times one factor
  kPositionShift,    ///< row t is the right row t + shift
  kRopePermutation,  ///< right once heads are reordered between pairs and halves
  kPermutation,      ///< the right values of each row (or run of it) in another order
  kRowScale,         ///< the right values of each row (token) times a factor of its own
  kHighBit,          ///< runs of a row are off by multiples of one power of two of their step
  kTail,             ///< wrong only from a feature on
  kPeriod,           ///< wrong features repeat with a period
  kFeatures,         ///< wrong only in few features: rows of the weights
  kRows,             ///< wrong only in some rows (tokens)
  kFeatureScale,     ///< each feature times a factor of its own, which all rows share
  kOffset,           ///< one row is added to every row
};

struct Signature {
  SignatureKind kind = SignatureKind::kNone;
  std::string text = {};  ///< one clause for people
};

/// How to read the matrices, both [rows, features].
struct SignatureOptions {
  std::size_t head_dim = 0;  ///< features of a head, 0: the tap has no heads
  std::size_t rope_dim = 0;  ///< leading features of a head that rotate
  double tolerance = 1e-9;   ///< NMSE up to which two matrices count as equal
};

/// The first of the signatures, in the order above, that explains how `actual` differs.
/// @pre equal shapes, not empty
/// Cost: some passes and a sort of each row.
Signature find_signature(const TapMatrix& actual, const TapMatrix& expected,
                         const SignatureOptions& options = {});

/// The tests one by one; each returns kNone when it does not fit. Preconditions as above.
Signature scale_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance);
Signature shift_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance);
Signature rope_signature(const TapMatrix& actual, const TapMatrix& expected,
                         const SignatureOptions& options);
Signature permutation_signature(const TapMatrix& actual, const TapMatrix& expected,
                                double tolerance);
Signature row_scale_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance);
Signature feature_scale_signature(const TapMatrix& actual, const TapMatrix& expected,
                                  double tolerance);
Signature offset_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance);
/// Rows that hold dequantized weights: errors that are 4, 8, 16 or 32 steps of an aligned run of 32
/// come from bits of the codes that were read from the wrong place.
Signature high_bit_signature(const TapMatrix& actual, const TapMatrix& expected);
/// kTail, kFeatures, kPeriod or kRows by where the wrong elements are.
Signature place_signature(const TapMatrix& actual, const TapMatrix& expected, double tolerance);

}  // namespace llm
