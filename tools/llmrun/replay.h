#pragma once

namespace llm {

/// `llmrun replay RECEIPT`: argv[1] is "replay". @return the exit code
int run_replay(int argc, char** argv) noexcept;

}  // namespace llm
