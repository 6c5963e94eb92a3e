#include "model/modelhash.h"

#include <stdlib.h>

#include <sodium.h>

#include "common/alloc.h"
#include "model/jsontext.h"

enum { CONFIG_BYTES = 16 << 20 };

int modelhash(const char *dir, char text[MODELHASH_TEXT], struct k3_error *err)
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    char *path = k3_asprintf("%s/config.json", dir), *config;
    size_t len;

    config = jsontext_load(path, CONFIG_BYTES, &len, err);
    free(path);
    if (!config)
        return -1;
    crypto_generichash(hash, sizeof hash, (const unsigned char *)config, len, NULL, 0);
    free(config);
    sodium_bin2hex(text, MODELHASH_TEXT, hash, sizeof hash);
    return 0;
}
