// Preloaded into a program, makes it take its environment's locale, as a library it links might do.

#include <locale.h>

__attribute__((constructor)) static void take_locale(void) { setlocale(LC_ALL, ""); }
