#include "kernels/test/check.h"

#include <stdio.h>
#include <time.h>

#undef malloc
#undef free

static uint64_t seed;
static struct k3_stream *gpu; /* NULL: there is none */
static int looked_for_gpu, rounds_to_bf16;

/* --- memory ------------------------------------------------------------------------------------------------------ */

static struct k3_stream *find_gpu(void)
{
    if (!looked_for_gpu)
        gpu = kern_stream_create("cuda", 1);
    looked_for_gpu = 1;
    return gpu;
}

int check_emulated(void)
{
    struct kern_device d;
    return find_gpu() != NULL && kern_device_of(gpu, &d) == 0 && strcmp(d.name, "emulated") == 0;
}

void *check_malloc(size_t bytes)
{
    return find_gpu() != NULL ? kern_alloc_host(gpu, bytes) : malloc(bytes);
}

void check_free(void *p)
{
    if (gpu != NULL)
        kern_free_host(gpu, p, 0);
    else
        free(p);
}

static void *list_room(size_t bytes)
{
    enum { ROOM = 4 << 20 };
    static char *room;
    static size_t used;
    if (room == NULL)
        room = check_malloc(ROOM);
    assert_non_null(room);
    bytes = (bytes + 15) & ~(size_t)15;
    assert_true(bytes <= ROOM / 256);
    if (used + bytes > ROOM)
        used = 0;
    used += bytes;
    return room + used - bytes;
}

static const void *copy_of(const void *list, size_t bytes)
{
    return list == NULL ? NULL : memcpy(list_room(bytes), list, bytes);
}

const int32_t *check_list(const int32_t *list, int64_t n)
{
    return copy_of(list, (size_t)n * sizeof *list);
}

int check_rounds_to_bf16(void)
{
    return rounds_to_bf16;
}

void check_seed(void)
{
    const char *env = getenv("K3_TEST_SEED");
    char number[32];
    seed = env != NULL ? strtoull(env, NULL, 0) : (uint64_t)time(NULL);
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
    setenv("K3_TEST_SEED", number, 1); /* the emulated GPU's, too */
    printf("# K3_TEST_SEED=%llu\n", (unsigned long long)seed);
}

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014 */
uint32_t random_bits(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

double random_uniform(double low, double high)
{
    return low + (high - low) * (random_bits() * 0x1p-32);
}

int random_below(int n)
{
    return (int)(random_bits() % (uint32_t)n);
}

int check_has(const char *backend)
{
    struct k3_stream *s = kern_stream_create(backend, 1);
    int has = s != NULL;
    if (!has)
        assert_true(errno == ENOTSUP || errno == ENODEV);
    kern_stream_destroy(s);
    return has;
}

static void *filled(size_t bytes)
{
    void *p = check_malloc(bytes + 1);
    assert_non_null(p);
    memset(p, 0xff, bytes + 1); /* NaN as F32, BF16 and as an MXFP4 scale */
    return p;
}

struct k3_tensor tensor_f32(int64_t rows, int64_t cols, int64_t pad)
{
    struct k3_tensor t = {.dtype = K3_F32, .rows = rows, .cols = cols, .stride = cols + pad};
    t.data = filled((size_t)(rows * t.stride) * sizeof(float));
    return t;
}

struct k3_tensor tensor_random(int64_t rows, int64_t cols, int64_t pad, double low, double high)
{
    struct k3_tensor t = tensor_f32(rows, cols, pad);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ref_put(&t, r, c, random_uniform(low, high));
    return t;
}

static uint8_t e4m3_code(void)
{
    uint8_t code = (uint8_t)random_bits();
    return (code & 0x7f) == 0x7f ? 0 : code;
}

static void random_codes(struct k3_tensor *t)
{
    int codes = t->dtype == K3_MXFP4 ? 2 : 1; /* a byte */
    int64_t bytes = t->cols / codes, pitch = t->stride / codes, blocks = t->cols / K3_MX_BLOCK,
            scales = t->stride / K3_MX_BLOCK;
    memset(t->data, 0xff, (size_t)(t->rows * pitch)); /* NaN as e4m3 */
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t i = 0; i < bytes; i++)
            ((uint8_t *)t->data)[r * pitch + i] = codes == 2 ? (uint8_t)random_bits() : e4m3_code();
    if (t->dtype == K3_FP8_E4M3) {
        t->scale = filled((size_t)t->rows * sizeof(float));
        for (int64_t r = 0; r < t->rows; r++)
            ((float *)t->scale)[r] = (float)random_uniform(0x1p-12, 0x1p-8);
        return;
    }
    t->scale = filled((size_t)(t->rows * scales));
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t i = 0; i < blocks; i++)
            ((uint8_t *)t->scale)[r * scales + i] = (uint8_t)((codes == 2 ? 120 : 113) + random_below(8));
}

struct k3_tensor tensor_weights(enum k3_dtype dtype, int64_t rows, int64_t cols, int64_t pad)
{
    struct k3_tensor t = tensor_random(rows, cols, pad, -1, 1);
    if (dtype == K3_F32)
        return t;
    t.dtype = dtype;
    if (dtype != K3_BF16)
        random_codes(&t);
    for (int64_t i = 0; dtype == K3_BF16 && i < rows * t.stride; i++)
        ((uint16_t *)t.data)[i] = ((uint16_t *)t.data)[2 * i + 1];
    return t;
}

void tensor_free(struct k3_tensor *t)
{
    check_free(t->data);
    check_free(t->scale);
}

struct k3_tensor tensor_rows(const struct k3_tensor *t, int64_t begin, int64_t end)
{
    struct k3_tensor part = *t;
    part.rows = end - begin;
    part.data = (float *)t->data + begin * t->stride;
    return part;
}

void tensor_copy(const struct k3_tensor *to, const struct k3_tensor *from)
{
    for (int64_t r = 0; r < from->rows; r++)
        for (int64_t c = 0; c < from->cols; c++)
            ref_put(to, r, c, ref_get(from, r, c));
}

double bound_dot(int64_t n, double sum_of_magnitudes)
{
    int64_t block = n < 1024 ? n : 1024, blocks = (n + 1023) / 1024;
    return (double)(block / 8 + 1 + 3 + blocks + 2) * U * sum_of_magnitudes;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct kern_latents check_latents(const struct k3_stream *s, const float *values, int64_t places, int32_t page_tokens)
{
    struct kern_latents c = {.dtype = kern_latent_dtype(s), .page_tokens = page_tokens};
    int64_t n = places * K3_CACHE_DIM;
    c.data = check_malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        if (c.dtype == K3_BF16)
            ((uint16_t *)c.data)[i] = to_bf16(values[i]);
        else
            ((float *)c.data)[i] = values[i];
    return c;
}

float check_latent(const struct kern_latents *c, int64_t place, int d)
{
    int64_t at = place * K3_CACHE_DIM + d;
    uint32_t bits;
    float f;
    if (c->dtype == K3_F32)
        return ((const float *)c->data)[at];
    bits = (uint32_t)((const uint16_t *)c->data)[at] << 16;
    memcpy(&f, &bits, sizeof f);
    return f;
}

struct kern_batch batch_part(const struct kern_batch *b, int64_t u0, int64_t u1)
{
    struct kern_batch part = *b;
    size_t seqs = (size_t)(u1 - u0);
    int32_t *begin = list_room((seqs + 1) * sizeof *begin);
    for (int64_t u = u0; u <= u1; u++)
        begin[u - u0] = b->begin[u] - b->begin[u0];
    part.rows = begin[seqs];
    part.seqs = (int32_t)seqs;
    part.begin = begin;
    part.slot = copy_of(b->slot + u0, seqs * sizeof *b->slot);
    part.pos = copy_of(b->pos + u0, seqs * sizeof *b->pos);
    part.pages =
        b->pages ? copy_of(b->pages + u0 * b->page_stride, seqs * (size_t)b->page_stride * sizeof *b->pages) : NULL;
    part.prefill = b->prefill ? copy_of(b->prefill + u0, seqs * sizeof *b->prefill) : NULL;
    return part;
}

/* --- one operation ----------------------------------------------------------------------------------------------- */

struct result {
    struct k3_tensor y;
    float *state;
};

static int64_t row_of(const struct check *c, int64_t u)
{
    return c->begin != NULL ? c->begin[u] : u;
}

static struct result run(const struct check *c, const char *backend, int threads, int64_t at_a_time)
{
    struct k3_stream *s = kern_stream_create(backend, threads);
    struct result r = {.y = tensor_f32(row_of(c, c->units), c->cols, 3),
                       .state = filled((size_t)(c->units * c->state) * sizeof(float))};
    assert_non_null(s);
    for (int64_t u = 0; u < c->units; u += at_a_time) {
        int64_t end = u + at_a_time < c->units ? u + at_a_time : c->units;
        struct k3_tensor y = tensor_rows(&r.y, row_of(c, u), row_of(c, end));
        assert_int_equal(c->run(c->arg, s, u, end, &y, r.state + u * c->state), 0);
    }
    assert_int_equal(kern_sync(s), 0);
    kern_stream_destroy(s);
    return r;
}

static void drop(struct result *r)
{
    tensor_free(&r->y);
    check_free(r->state);
}

static void same_bits(const struct check *c, const struct result *a, const struct result *b)
{
    assert_memory_equal(a->y.data, b->y.data, (size_t)(a->y.rows * a->y.stride) * sizeof(float));
    assert_memory_equal(a->state, b->state, (size_t)(c->units * c->state) * sizeof(float));
}

static void near(const char *where, double got, double expected, double bound, int64_t i, int64_t j)
{
    if (isnan(expected) && isnan(got))
        return;
    if (!(fabs(got - expected) <= bound))
        fail_msg("%s[%lld][%lld] is %.9g, expected %.9g +- %.3g", where, (long long)i, (long long)j, got, expected,
                 bound);
}

static void within_bounds(const struct check *c, const struct result *got, const struct result *expected)
{
    for (int64_t t = 0; t < got->y.rows; t++) {
        for (int64_t d = 0; d < c->cols; d++) {
            double e = ref_get(&expected->y, t, d);
            near("y", ref_get(&got->y, t, d), e, c->bound(c->arg, t, d, e), t, d);
        }
        for (int64_t d = c->cols; d < got->y.stride; d++)
            assert_true(isnan(ref_get(&got->y, t, d)));
    }
    for (int64_t i = 0; i < c->units * c->state; i++) {
        int64_t u = i / c->state, j = i % c->state;
        near("state", got->state[i], expected->state[i], c->state_bound(c->arg, u, j, expected->state[i]), u, j);
    }
}

static void check_cuda(const struct check *c, const struct result *expected)
{
    int64_t units = c->units > 0 ? c->units : 1;
    struct result all = run(c, "cuda", 1, units);
    rounds_to_bf16 = 1;
    within_bounds(c, &all, expected);
    rounds_to_bf16 = 0;
    for (int64_t at_a_time = 1; at_a_time <= 3; at_a_time += 2) {
        if (check_emulated() && at_a_time == 1 && units > 3)
            continue;
        struct result other = run(c, "cuda", 1, check_emulated() && units > 16 ? (units + 2) / 3 : at_a_time);
        same_bits(c, &all, &other);
        drop(&other);
    }
    drop(&all);
}

void check_operation(const struct check *c)
{
    static const char *const variants[] = {"cpu-avx512", "cpu-avx2", "cpu-plain"};
    struct result expected = run(c, "ref", 1, c->units > 0 ? c->units : 1);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (!check_has(variants[i]) || check_emulated()) /* the same test holds them without the emulator */
            continue;
        struct result all = run(c, variants[i], 1, c->units > 0 ? c->units : 1), other;
        within_bounds(c, &all, &expected);
        for (int threads = 1; threads <= 3; threads++) {
            other = run(c, variants[i], threads, threads == 1 ? 1 : c->units > 0 ? c->units : 1);
            same_bits(c, &all, &other);
            drop(&other);
        }
        other = run(c, variants[i], 2, 3);
        same_bits(c, &all, &other);
        drop(&other);
        drop(&all);
    }
    if (find_gpu() != NULL)
        check_cuda(c, &expected);
    drop(&expected);
}
