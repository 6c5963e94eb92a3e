/* ref.c - the reference backend's stream and its way to read elements */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ref/ref.h"

struct ref_stream {
    struct k3_stream base;
    double *scratch;
    size_t capacity;
};

static void ref_destroy(struct k3_stream *s)
{
    struct ref_stream *r = (struct ref_stream *)s;
    free(r->scratch);
    free(r);
}

static int ref_sync(struct k3_stream *s)
{
    (void)s;
    return 0;
}

static const struct kern_backend ref_backend = {.name = "ref",
                                                .destroy = ref_destroy,
                                                .sync = ref_sync,
#define X(op) .op = ref_##op,
                                                KERN_OPERATIONS(X)
#undef X
};

struct k3_stream *ref_stream_create(int threads)
{
    struct ref_stream *r = calloc(1, sizeof *r);
    (void)threads;
    if (r == NULL)
        return NULL;
    r->base.backend = &ref_backend;
    return &r->base;
}

double *ref_scratch(struct k3_stream *s, size_t n)
{
    struct ref_stream *r = (struct ref_stream *)s;
    if (n > r->capacity || r->scratch == NULL) {
        double *grown = realloc(r->scratch, (n + 1) * sizeof *grown);
        if (grown == NULL)
            return NULL;
        r->scratch = grown;
        r->capacity = n;
    }
    return r->scratch;
}

static double bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof f);
    return f;
}

/* 2^(scale - 127); 255 is NaN. */
static double e8m0(unsigned scale)
{
    return scale == 255 ? NAN : ldexp(1, (int)scale - 127);
}

/* SPEC 3.3: e2m1 code times its block's scale. */
static double mxfp4(unsigned code, unsigned scale)
{
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    double m = magnitude[code & 7] * e8m0(scale);
    return code & 8 ? -m : m;
}

/* e4m3: 1 sign, 4 exponent and 3 mantissa bits; the largest magnitude is NaN. */
static double e4m3(unsigned code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double m = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);

    if ((code & 0x7f) == 0x7f)
        m = NAN;
    return code & 0x80 ? -m : m;
}

double ref_get(const struct k3_tensor *t, int64_t r, int64_t c)
{
    int64_t at = r * t->stride + c;
    switch (t->dtype) {
    case K3_F32:
        return ((const float *)t->data)[at];
    case K3_BF16:
        return bf16(((const uint16_t *)t->data)[at]);
    case K3_MXFP4:
        return mxfp4(((const uint8_t *)t->data)[at / 2] >> (at % 2 * 4) & 15,
                     ((const uint8_t *)t->scale)[at / K3_MX_BLOCK]);
    case K3_FP8_E4M3:
        return e4m3(((const uint8_t *)t->data)[at]) * ((const float *)t->scale)[r];
    case K3_MXFP8:
        return e4m3(((const uint8_t *)t->data)[at]) * e8m0(((const uint8_t *)t->scale)[at / K3_MX_BLOCK]);
    default:
        return NAN;
    }
}

void ref_put(const struct k3_tensor *t, int64_t r, int64_t c, double v)
{
    ((float *)t->data)[r * t->stride + c] = (float)v;
}

double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double ref_situ_of(double gate, double up, double beta, double linear_beta)
{
    return beta * tanh(gate / beta) * ref_sigmoid(gate) * linear_beta * tanh(up / linear_beta);
}

float *ref_latent(const struct kern_latents *cache, const struct kern_batch *b, int i, int64_t pos)
{
    int64_t page = b->pages[(int64_t)i * b->page_stride + pos / cache->page_tokens];
    return (float *)cache->data + (page * cache->page_tokens + pos % cache->page_tokens) * K3_CACHE_DIM;
}
