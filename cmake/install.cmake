# cmake --install, and a Debian package by CPack: the tools, their pages made from their option tables, the
# embedded model, the docs.

include(GNUInstallDirs)

set(LLM_TOOLS llmbench llmcheck llmgguf llmload llmquant llmrun llmserve llmsynth llmtok)
install(TARGETS ${LLM_TOOLS} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# The tools print their own pages, so they are asked at install time.
set(LLM_PAGES ${PROJECT_BINARY_DIR}/pages)
install(CODE "
  file(MAKE_DIRECTORY \"${LLM_PAGES}\")
  function(page file)
    execute_process(COMMAND \${ARGN} OUTPUT_FILE \"${LLM_PAGES}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  foreach(tool ${LLM_TOOLS})
    set(program \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/\${tool}\")
    page(\${tool} \${program} --completion bash)
    page(_\${tool} \${program} --completion zsh)
    page(\${tool}.fish \${program} --completion fish)
  endforeach()
  page(changelog.gz gzip -9nc \"${PROJECT_SOURCE_DIR}/CHANGELOG.md\")
")
foreach(tool ${LLM_TOOLS})
  install(FILES ${LLM_PAGES}/${tool} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${LLM_PAGES}/_${tool} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${LLM_PAGES}/${tool}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endforeach()

install(FILES models/fable-3m-q4_k_m.gguf models/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/llmrun/models)
install(FILES README.md ${LLM_PAGES}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
foreach(library katex highlight)  # parts of llmserve
  install(FILES third_party/page/${library}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright.${library})
endforeach()
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME llmrun)
set(CPACK_PACKAGE_VENDOR "The llmrun authors")
set(CPACK_PACKAGE_CONTACT "The llmrun authors <llmrun@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION "Runs quantized Llama models on the CPU with bits that do not depend on threads,
batch split, KV cache or instruction set, and proves it on the user's own
file: llmrun, llmcheck, llmquant, llmbench, llmload, llmserve, llmtok, llmgguf,
llmsynth,
and a small model.")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
