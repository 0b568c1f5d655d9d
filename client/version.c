#include <brook/brook.h>

const char *brook_version(void)
{
    return BROOK_VERSION_TEXT;
}
