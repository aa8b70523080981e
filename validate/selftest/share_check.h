#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "quant/kernels/kernel_table.h"
#include "validate/report/report.h"

namespace llm {

/// Checks how RowTasks cuts a matrix for the workers of a team, which for large matrices no small
/// model shows: for each type, a matrix of random blocks with 24,039 rows (1,503 panels, the last
/// of 7 rows), cut for teams of 1, 2, 3 and 7, for one token and for several. Every row must be
/// computed, and be what the definition gives. Tasks run one after the other, so that what is in
/// none of them shows on any machine. Then Worker::share() by itself: teams of 1 to 64 deal out
/// every item once, for all numbers of items up to 200.
/// @param table  of the instruction set that is used
/// Errors: kResource.
Result<std::vector<CheckResult>> check_shares(const KernelTable& table,
                                              std::span<const WeightType> types);

}  // namespace llm
