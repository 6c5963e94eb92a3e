#include "model/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One "tp=8"; returns what follows it, or NULL. */
static const char *parse_degree(const char *text, struct layout *l)
{
    static const char *const names[] = {"tp=", "pp=", "ep="};
    int *const degrees[] = {&l->tp, &l->pp, &l->ep};
    char *end;

    for (int i = 0; i < 3; i++) {
        if (strncmp(text, names[i], 3) != 0)
            continue;
        long n = strtol(text + 3, &end, 10);
        *degrees[i] = (int)n;
        return end != text + 3 && n >= 1 && n <= LAYOUT_RANKS_MAX ? end : NULL;
    }
    return NULL;
}

int layout_parse(const char *text, struct layout *l, struct k3_error *err)
{
    const char *at = text;

    *l = (struct layout){1, 1, 1};
    while ((at = parse_degree(at, l)) && *at == ',')
        at++;
    if (at && !*at)
        return 0;
    errno = EINVAL;
    return k3_errorf(err, "layout '%s': tp=N, pp=N and ep=N with commas between them, N from 1 to %d", text,
                     LAYOUT_RANKS_MAX);
}

int layout_check(const struct k3_config *c, const struct layout *l, struct k3_error *err)
{
    errno = EINVAL;
    if (layout_ranks(l) > LAYOUT_RANKS_MAX)
        return k3_errorf(err, "tp=%d,pp=%d: more than %d ranks", l->tp, l->pp, LAYOUT_RANKS_MAX);
    if (l->pp > c->layers)
        return k3_errorf(err, "pp=%d: the model has only %d layers", l->pp, c->layers);
    if (l->tp % l->ep)
        return k3_errorf(err, "ep=%d: the %d ranks of a stage do not form %d groups of the same size", l->ep, l->tp,
                         l->ep);
    if (l->ep > c->experts)
        return k3_errorf(err, "ep=%d: the model has only %d experts", l->ep, c->experts);
    return 0;
}

int layout_of_job(const char *text, int ranks, const struct k3_config *c, struct layout *l, struct k3_error *err)
{
    char name[LAYOUT_NAME];

    *l = (struct layout){ranks, 1, 1};
    if (*text && layout_parse(text, l, err) < 0)
        return -1;
    if (layout_check(c, l, err) < 0)
        return -1;
    if (layout_ranks(l) == ranks)
        return 0;
    errno = EINVAL;
    return k3_errorf(err, "layout %s is one of %d rank%s, but the job has %d", layout_name(l, name), layout_ranks(l),
                     layout_ranks(l) == 1 ? "" : "s", ranks);
}

int layout_ranks(const struct layout *l)
{
    return l->tp * l->pp;
}

const char *layout_name(const struct layout *l, char text[LAYOUT_NAME])
{
    int n = snprintf(text, LAYOUT_NAME, "tp=%d", l->tp);

    if (l->pp > 1)
        n += snprintf(text + n, LAYOUT_NAME - (size_t)n, ",pp=%d", l->pp);
    if (l->ep > 1)
        snprintf(text + n, LAYOUT_NAME - (size_t)n, ",ep=%d", l->ep);
    return text;
}

struct shard layout_shard(const struct layout *l, int rank)
{
    return (struct shard){.tp = l->tp, .rank = rank % l->tp, .ep = l->ep, .pp = l->pp, .stage = rank / l->tp};
}

int layout_of_shard(const struct shard *sh, struct layout *l)
{
    *l = (struct layout){.tp = sh->tp, .pp = sh->pp ? sh->pp : 1, .ep = sh->ep ? sh->ep : 1};
    return sh->stage * sh->tp + sh->rank;
}
