/* conf.c - k3.conf: what is accepted is shown as a file that says the same */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/settings.h"
#include "fuzz.h"

/* libconfig 1.5 does not free the beginning of a text that the file ends in. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig.so";
}

/* --show-config of these bytes as k3.conf, to be freed; NULL when they are refused. */
static char *shown(const void *text, size_t size)
{
    char *path = fuzz_file("k3.conf", text, size), *show = NULL;
    struct k3_error err = {""};
    struct settings s;
    size_t len;

    if (settings_load(&s, path, &err) == 0) {
        FILE *out = open_memstream(&show, &len);
        settings_show(&s, out);
        fclose(out);
        settings_clear(&s);
    } else {
        fuzz_require_sentence(&err);
        require(strncmp(err.text, path, strlen(path)) == 0, "the sentence does not name the file: %s", err.text);
    }
    free(path);
    return show;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* What other files hold is not the input's to decide. */
    if (memmem(data, size, "@include", 8))
        return 0;
    char *first = shown(data, size);
    if (!first)
        return 0;
    char *second = shown(first, strlen(first));
    require(second, "--show-config is no k3.conf:\n%s", first);
    /* The first says where each value stood in the input; from then on nothing changes. */
    char *third = shown(second, strlen(second));
    require(third && strcmp(second, third) == 0, "--show-config does not come back:\n%s", second);
    free(first);
    free(second);
    free(third);
    return 0;
}
