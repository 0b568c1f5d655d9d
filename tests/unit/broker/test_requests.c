#include "tests/support/suite.h"
START_TEST(nothing)
{
}
END_TEST
SUITE_MAIN("x", SUITE_TEST(nothing))
