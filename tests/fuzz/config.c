/* config.c - config.json: what is refused changes nothing, what is accepted can be asked about every layer */
#include <string.h>

#include "fuzz.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct k3_error err = {""};
    struct k3_config c, untouched;

    memset(&c, 0x5a, sizeof c);
    untouched = c;
    if (k3_config_parse("config.json", (const char *)data, size, &c, &err) < 0) {
        fuzz_require_sentence(&err);
        require(memcmp(&c, &untouched, sizeof c) == 0, "a refused file changed the config");
        return 0;
    }
    require(c.layers > 0 && c.layers <= K3_MAX_LAYERS, "%d layers", c.layers);
    require(c.topk > 0 && c.topk <= c.experts, "%d of %d experts", c.topk, c.experts);
    for (int l = 0; l < c.layers; l++) {
        require(c.attention[l] == K3_KDA || c.attention[l] == K3_MLA, "layer %d has no attention", l);
        require(!k3_config_is_moe(&c, l) || l >= c.first_dense, "layer %d is dense", l);
    }
    return 0;
}
