# The instruction sets that kernels are built for: all that the architecture has, but for a build of this machine's own, which
# takes half the time. LLM_BUILT_ISAS are those beside scalar; llm_knows_isas() tells a source of them.
set(LLM_ISAS all CACHE STRING "Kernels for: all, native (this CPU's best), or a list of the words of --isa")

# The word of --isa and the name in the tables of C++.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(llm_isas avx2 Avx2 avx512 Avx512 avxvnni AvxVnni avx512vnni Avx512Vnni amx Amx)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(llm_isas neon Neon)
endif()

set(llm_wanted ${LLM_ISAS})
if(LLM_ISAS STREQUAL "native")
  if(NOT DEFINED LLM_NATIVE_ISA)
    try_run(llm_ran llm_compiled
      SOURCES ${PROJECT_SOURCE_DIR}/cmake/best_isa.cpp ${PROJECT_SOURCE_DIR}/base/cpu_features.cpp
      CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR} CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
      COMPILE_OUTPUT_VARIABLE llm_said RUN_OUTPUT_VARIABLE llm_best)
    if(NOT llm_compiled OR NOT llm_ran EQUAL 0)
      message(FATAL_ERROR "LLM_ISAS=native: this CPU cannot be asked: ${llm_said}")
    endif()
    set(LLM_NATIVE_ISA ${llm_best} CACHE INTERNAL "")
  endif()
  set(llm_wanted ${LLM_NATIVE_ISA})
endif()
# Whose entries another's table has, too.
foreach(pair amx:avx512vnni avx512vnni:avx512 avxvnni:avx2)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 llm_word)
  if(llm_word IN_LIST llm_wanted)
    list(GET pair 1 llm_word)
    list(APPEND llm_wanted ${llm_word})
  endif()
endforeach()

set(LLM_BUILT_ISAS)
set(llm_built "")
while(llm_isas)
  list(POP_FRONT llm_isas llm_word llm_name)
  if(llm_word IN_LIST llm_wanted OR LLM_ISAS STREQUAL "all")
    list(APPEND LLM_BUILT_ISAS ${llm_word})
    string(APPEND llm_built "LLM_ISA(${llm_name})\n")
  endif()
  list(REMOVE_ITEM llm_wanted ${llm_word})
endwhile()
list(REMOVE_ITEM llm_wanted all scalar)
if(llm_wanted)
  message(FATAL_ERROR "LLM_ISAS: found ${llm_wanted}, which ${CMAKE_SYSTEM_PROCESSOR} has not")
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/isas/base/built_isas.inc CONTENT "${llm_built}")

# llm_knows_isas(source): it may include base/built_isas.inc, which has LLM_ISA(name) for each of them.
function(llm_knows_isas source)
  set_source_files_properties(${source} PROPERTIES INCLUDE_DIRECTORIES ${PROJECT_BINARY_DIR}/isas COMPILE_DEFINITIONS LLM_HAS_BUILT_ISAS)
endfunction()
