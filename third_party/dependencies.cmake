# How each dependency is found; versions, licences and reasons are in third_party/README.md.
# Every one but xgrammar is a Debian 12 package (see `./dev deps`); newer releases build too.

find_package(Threads REQUIRED)
if(LLM_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS ON)
endif()
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(xsimd 8.1 REQUIRED)
# Debian's package makes the linker look for xtl, a header-only library that only xsimd's complex
# numbers use.
set_target_properties(xsimd PROPERTIES INTERFACE_LINK_LIBRARIES "")
if(LLM_STATIC)
  # Debian has these two as shared libraries and as headers.
  add_library(fmt_headers INTERFACE)
  target_compile_definitions(fmt_headers INTERFACE FMT_HEADER_ONLY)
  add_library(fmt::fmt ALIAS fmt_headers)
  add_library(spdlog_headers INTERFACE)
  target_compile_definitions(spdlog_headers INTERFACE SPDLOG_FMT_EXTERNAL)
  target_link_libraries(spdlog_headers INTERFACE fmt_headers Threads::Threads)
  add_library(spdlog::spdlog ALIAS spdlog_headers)
else()
  find_package(spdlog 1.10 REQUIRED)
  find_package(fmt 9 REQUIRED)
endif()
find_package(cxxopts 3.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED)  # headers: Asio, Beast and Math
if(NOT LLM_BUILD_PYTHON AND NOT LLM_STATIC)
  find_package(CURL 7.84)  # without it, -hf is refused
endif()

# Random123 is header-only and ships no CMake package.
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
add_library(random123 INTERFACE)
target_include_directories(random123 SYSTEM INTERFACE ${RANDOM123_INCLUDE_DIR})

# xxHash is used as headers and ships no CMake package.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(xxhash INTERFACE)
target_include_directories(xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})

# libedit has a pkg-config file and no CMake package.
find_path(LIBEDIT_INCLUDE_DIR histedit.h REQUIRED)
find_library(LIBEDIT_LIBRARY edit REQUIRED)
add_library(libedit INTERFACE)
target_include_directories(libedit SYSTEM INTERFACE ${LIBEDIT_INCLUDE_DIR})
target_link_libraries(libedit INTERFACE ${LIBEDIT_LIBRARY})
if(LLM_STATIC)
  foreach(part ncurses tinfo bsd md)
    find_library(LIBEDIT_${part} ${part} REQUIRED)
    target_link_libraries(libedit INTERFACE ${LIBEDIT_${part}})
  endforeach()
endif()

# A wheel has as few libraries of others in it as can be: of those from here on the static ones.
if(LLM_BUILD_PYTHON)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
endif()
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(ZLIB 1.2.9 REQUIRED)

# PCRE2 ships a CMake package in later releases of Debian only. \p{White_Space} came with 10.40.
find_path(PCRE2_INCLUDE_DIR pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(pcre2 INTERFACE)
target_include_directories(pcre2 SYSTEM INTERFACE ${PCRE2_INCLUDE_DIR})
target_link_libraries(pcre2 INTERFACE ${PCRE2_LIBRARY})

# xgrammar is in no Debian release: `./dev grammars` builds it from its source package into build/deps. Without it, grammars are
# refused. It is not instrumented, so ThreadSanitizer would not see what orders its threads.
option(LLM_GRAMMARS "Grammars and JSON schemas, where `./dev grammars` has built their library" ON)
set(LLM_XGRAMMAR ${PROJECT_SOURCE_DIR}/build/deps/xgrammar-0.2.8-counted)
set(LLM_HAS_GRAMMARS OFF)
if(SKBUILD AND LLM_GRAMMARS AND NOT EXISTS ${LLM_XGRAMMAR}/.ready)  # `pip install .` in a fresh checkout
  execute_process(COMMAND ${CMAKE_COMMAND} -E env LLM_NO_APT=1 bash ${PROJECT_SOURCE_DIR}/dev grammars
    RESULT_VARIABLE llm_grammars_failed)
  if(llm_grammars_failed)
    message(WARNING "The package will have NO GRAMMARS: response_format, grammar, regex and forced tools will be refused. "
      "`./dev grammars` says why and tries again.")
  endif()
endif()
if(LLM_GRAMMARS AND EXISTS ${LLM_XGRAMMAR}/.ready)
  set(LLM_HAS_GRAMMARS ON)
  add_library(xgrammar STATIC IMPORTED)
  set_target_properties(xgrammar PROPERTIES
    IMPORTED_LOCATION ${LLM_XGRAMMAR}/lib/libxgrammar.a
    INTERFACE_INCLUDE_DIRECTORIES ${LLM_XGRAMMAR}/include
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()

if(LLM_BUILD_TESTS)
  find_package(Catch2 REQUIRED)
endif()
