/* encode.c - any bytes as token ids, and back */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static void check(int (*encode)(const struct vocab *, const char *, size_t, struct tokens *, struct k3_error *),
                  const char *text, size_t size, bool controls)
{
    const struct vocab *v = fuzz_vocab();
    struct k3_error err = {""};
    struct tokens ids = {0};
    size_t len;

    require(encode(v, text, size, &ids, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < ids.n; i++)
        require(controls || !vocab_is_control(v, ids.id[i]), "text became %s", vocab_name(v, ids.id[i]));
    char *back = fuzz_spell(v, &ids, &len);
    require(len == size && (len == 0 || memcmp(back, text, len) == 0), "the ids spell another text");
    free(back);
    tokens_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(vocab_encode, (const char *)data, size, false);
    check(vocab_encode_raw, (const char *)data, size, true);
    return 0;
}
