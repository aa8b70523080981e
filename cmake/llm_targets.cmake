# Compile settings shared by every target, and two functions that declare targets with them.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# GCC collects its garbage from 1 GiB on, which no source here reaches: a tenth less time.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>)

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
if(LLM_STATIC)
  target_link_options(llm_flags INTERFACE -static)
endif()
# Null pointers end the process and AddressSanitizer sees what object-size does: without their checks, which are most of
# the code that nlohmann's templates become, this builds a third quicker.
if(LLM_SANITIZE)
  if(LLM_FUZZ)  # counts what is reached
    set(llm_counted ,fuzzer-no-link)
  endif()
  target_compile_options(llm_flags INTERFACE "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:LLM_NOT_SANITIZED>>>:\
-fsanitize=address,undefined${llm_counted};-fno-sanitize=null,object-size,vptr;-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(llm_flags INTERFACE -fsanitize=address,undefined)
endif()

# Several sources of a target are compiled as one, so that their headers are read once. Not where tests/fault_injection puts functions
# between the units of a library.
option(LLM_UNITY "Compile sources of a library or program together" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
# llm_alone(sources...): sources of this folder one of whose local names is also another source's of their target.
function(llm_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Headers that most sources include, read once for each set of options: half a second less for each source, where
# nlohmann's costs as much to load as it saves. A source includes what it uses all the same: the preset `dev` builds
# without. std::quoted would take calls of ours, so nothing here includes <iomanip>.
option(LLM_PRECOMPILE "Precompile common headers" ON)

# llm_precompile(name [HEADERS...]): precompiles them, and more, under this folder's options, for its targets and those of the folders below.
macro(llm_precompile name)
  if(LLM_PRECOMPILE)
    file(CONFIGURE OUTPUT ${name}.cpp CONTENT "// Precompiled headers need a source to belong to.\n")
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE llm_flags fmt::fmt OpenMP::OpenMP_CXX)
    target_precompile_headers(${name} PRIVATE <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring>
      <fstream> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string>
      <string_view> <utility> <vector> <fmt/format.h> ${ARGN})
    set(LLM_PRECOMPILED ${name})
  endif()
endmacro()
function(llm_use_precompiled target)
  if(LLM_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${LLM_PRECOMPILED})
    # GCC 12 warns falsely about inlined std::string operators (GCC bug 105651), of precompiled headers above all.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
endfunction()
llm_precompile(llm_headers)

# llm_library(name SOURCES... DEPENDS...): a static library of this project.
function(llm_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC llm_flags ${ARG_DEPENDS})
  llm_use_precompiled(${name})
endfunction()

# llm_tool(name SOURCES... DEPENDS...): an executable in bin/.
function(llm_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(LLM_BUILD_PYTHON)  # -fPIC as in the precompiled headers, where CMake says -fPIE
    set_property(TARGET ${name} PROPERTY POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIC)
  endif()
  target_link_libraries(${name} PRIVATE llm_flags ${ARG_DEPENDS})
  llm_use_precompiled(${name})
endfunction()
