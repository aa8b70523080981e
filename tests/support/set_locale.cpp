// Preloaded into a program, makes it take its environment's locale, as a library it links might do.

#include <clocale>

[[gnu::constructor]] static void take_locale() { std::setlocale(LC_ALL, ""); }
