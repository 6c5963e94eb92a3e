#include "engine/agree.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/log.h"
#include "common/median.h"

/* A rank copies less than this share of what the median rank does, or runs below this share of its highest clock. */
static const double SLOW = 0.85, SLOW_CLOCK = 0.6;

/* What must be the same everywhere, and what a person calls it. */
static const struct {
    const char *name;
    size_t offset;
    enum { TEXT, NUMBER } kind;
} same[] = {
    {"k3 version", offsetof(struct standing, version), TEXT},
    {"config.json (hash)", offsetof(struct standing, model), TEXT},
    {"k3served.backend", offsetof(struct standing, backend), TEXT},
    {"k3served.layout", offsetof(struct standing, layout), TEXT},
    {"k3served.slots", offsetof(struct standing, slots), NUMBER},
    {"k3served.prefix_slots", offsetof(struct standing, prefix_slots), NUMBER},
    {"k3served.page_tokens", offsetof(struct standing, page_tokens), NUMBER},
    {"k3served.cache_tokens", offsetof(struct standing, cache_tokens), NUMBER},
    {"k3served.max_context", offsetof(struct standing, max_context), NUMBER},
    {"k3served.prefill_chunk", offsetof(struct standing, prefill_chunk), NUMBER},
    {"k3served.batch_tokens", offsetof(struct standing, batch_tokens), NUMBER},
};

static void print_field(const struct standing *s, size_t row, char *text, size_t size)
{
    const char *field = (const char *)s + same[row].offset;

    if (same[row].kind == TEXT)
        snprintf(text, size, "%s", field);
    else
        snprintf(text, size, "%" PRId32, *(const int32_t *)field);
}

static int check_same(const struct standing *all, int rank, struct k3_error *err)
{
    char ours[64], theirs[64];

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        print_field(&all[0], i, ours, sizeof ours);
        print_field(&all[rank], i, theirs, sizeof theirs);
        if (strcmp(ours, theirs) != 0) {
            errno = EINVAL;
            return k3_errorf(err, "rank %d on %s has %s %s, but rank 0 on %s has %s", rank, all[rank].node,
                             same[i].name, theirs, all[0].node, ours);
        }
    }
    return 0;
}

static int check_memory(const struct standing *all, int ranks, int rank, struct k3_error *err)
{
    const struct standing *s = &all[rank];
    const char *gpu = s->health.device.id;
    uint64_t need = 0, available = s->available_bytes;
    int sharing = 0;

    for (int r = 0; r < ranks; r++)
        if (strcmp(all[r].host, s->host) == 0 && strcmp(all[r].health.device.id, gpu) == 0) {
            sharing++;
            need += all[r].need_bytes;
            if (all[r].available_bytes < available) /* a rank looked later, when others had begun to take theirs */
                available = all[r].available_bytes;
        }
    if (available == 0 || need <= available)
        return 0;
    errno = ENOMEM;
    return k3_errorf(
        err,
        "%snode %s has %.2f GiB of memory available and %d rank(s) there need %.2f GiB: take more nodes, or less "
        "of k3served.cache_tokens, slots, prefix_slots or batch_tokens",
        *gpu ? "the GPU of " : "", s->node, (double)available / (1 << 30), sharing, (double)need / (1 << 30));
}

static int check_problem(const struct standing *all, int ranks, int rank, struct k3_error *err)
{
    if (!all[rank].problem.text[0])
        return 0;
    errno = EINVAL;
    *err = all[rank].problem;
    return ranks == 1 ? -1 : k3_error_prefix(err, "rank %d on %s: ", rank, all[rank].node);
}

int agree_check(const struct standing *all, int ranks, struct k3_error *err)
{
    for (int r = 0; r < ranks; r++)
        if (check_problem(all, ranks, r, err) < 0)
            return -1;
    for (int r = 1; r < ranks; r++)
        if (check_same(all, r, err) < 0)
            return -1;
    for (int r = 0; r < ranks; r++)
        if (check_memory(all, ranks, r, err) < 0)
            return -1;
    return 0;
}

void agree_log_devices(const struct standing *all, int ranks)
{
    double *rate = k3_calloc((size_t)ranks, sizeof *rate);

    for (int r = 0; r < ranks; r++)
        rate[r] = all[r].health.copy_gbs;
    median_sort(rate, ranks);
    for (int r = 0; r < ranks; r++) {
        const struct device_health *h = &all[r].health;
        if (!*h->device.id)
            continue;
        log_info("rank %d on %s: %s %s, copies %.0f GB/s, %d of %d MHz, %d C", r, all[r].node, h->device.name,
                 h->device.id, h->copy_gbs, h->sm_mhz, h->sm_most_mhz, h->celsius);
        if (h->copy_gbs < SLOW * rate[ranks / 2] || (h->sm_most_mhz > 0 && h->sm_mhz < SLOW_CLOCK * h->sm_most_mhz))
            log_warning(
                "rank %d on %s is slow: it copies %.0f GB/s at %d of %d MHz, the median rank %.0f GB/s; all ranks "
                "will wait for it",
                r, all[r].node, h->copy_gbs, h->sm_mhz, h->sm_most_mhz, rate[ranks / 2]);
    }
    free(rate);
}
