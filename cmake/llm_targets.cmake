# Compile settings shared by every target, and two functions that declare targets with them.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(llm_flags INTERFACE)
target_include_directories(llm_flags INTERFACE ${PROJECT_SOURCE_DIR})
# -ffp-contract=off: the numeric contract (docs/numerics.md) says where a fused multiply-add stands; the
# compiler must never make one of its own. -fno-math-errno keeps sqrt one instruction, with the same bits.
target_compile_options(llm_flags INTERFACE
  -ffp-contract=off -fno-math-errno
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wdouble-promotion
  -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough)
if(LLM_WERROR)
  target_compile_options(llm_flags INTERFACE -Werror)
endif()
if(LLM_SANITIZE)
  target_compile_options(llm_flags INTERFACE "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:LLM_NOT_SANITIZED>>>:\
-fsanitize=address,undefined;-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(llm_flags INTERFACE -fsanitize=address,undefined)
endif()

# Several sources of a target are compiled as one, so that their headers are read once. Not where tests/faults puts functions
# between the units of a library.
option(LLM_UNITY "Compile sources of tools, validate and tests together" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
# llm_alone(sources...): sources of this folder one of whose local names is also another source's of their target.
function(llm_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# llm_library(name SOURCES... DEPENDS...): a static library of this project.
function(llm_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC llm_flags ${ARG_DEPENDS})
endfunction()

# llm_tool(name SOURCES... DEPENDS...): an executable in bin/.
function(llm_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE llm_flags ${ARG_DEPENDS})
endfunction()
