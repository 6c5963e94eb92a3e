#include "engine/random.h"

#include <string.h>

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4], k0 = key[0], k1 = key[1];

    memcpy(x, counter, sizeof x);
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xd2511f53) * x[0], b = UINT64_C(0xcd9e8d57) * x[2];
        uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ k1, (uint32_t)a};
        memcpy(x, y, sizeof x);
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    memcpy(out, x, sizeof x);
}

double random_uniform(uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t x[4];

    random_philox(counter, key, x);
    return (double)(((uint64_t)x[0] << 21) ^ (x[1] >> 11)) * 0x1p-53;
}
