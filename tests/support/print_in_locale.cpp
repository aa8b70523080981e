// How a program looks that formats and parses by the locale: the control of locale_test.

#include <cstdio>
#include <string>

int main() { std::printf("%f %f\n", 0.5, std::stod("0.5")); }
