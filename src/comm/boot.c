#include "config.h"

#include "comm/boot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_PMIX
#include <pmix.h>
#endif

#include "common/alloc.h"

struct boot {
    int rank, size;
    char *node;
#ifdef HAVE_PMIX
    int joined; /* PMIx is open */
    pmix_proc_t me;
#endif
};

#ifdef HAVE_PMIX

/* Run a PMIx call; when it fails, write its sentence and return -1 from the function. */
#define PMIX_TRY(call)                                                                                                 \
    do {                                                                                                               \
        pmix_status_t status_ = (call);                                                                                \
        if (status_ != PMIX_SUCCESS)                                                                                   \
            return pmix_failed(err, #call, status_);                                                                   \
    } while (0)

static int pmix_failed(struct k3_error *err, const char *call, pmix_status_t status)
{
    errno = EIO;
    return k3_errorf(err, "%.*s: %s", (int)strcspn(call, "("), call, PMIx_Error_string(status));
}

static int pmix_ask_size(struct boot *b, struct k3_error *err)
{
    pmix_proc_t job;
    pmix_value_t *v;

    PMIX_LOAD_PROCID(&job, b->me.nspace, PMIX_RANK_WILDCARD);
    PMIX_TRY(PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &v));
    b->size = (int)v->data.uint32;
    PMIX_VALUE_RELEASE(v);
    return 0;
}

/* The name is for people: without one from PMIx the host's own will do. */
static void pmix_ask_node(struct boot *b)
{
    pmix_value_t *v;

    if (PMIx_Get(&b->me, PMIX_HOSTNAME, NULL, 0, &v) != PMIX_SUCCESS)
        return;
    if (v->type == PMIX_STRING && v->data.string) {
        free(b->node);
        b->node = k3_strdup(v->data.string);
    }
    PMIX_VALUE_RELEASE(v);
}

static int pmix_join(struct boot *b, struct k3_error *err)
{
    PMIX_TRY(PMIx_Init(&b->me, NULL, 0));
    b->joined = 1;
    b->rank = (int)b->me.rank;
    pmix_ask_node(b);
    return pmix_ask_size(b, err);
}

static int pmix_say(const char *key, const void *mine, size_t bytes, struct k3_error *err)
{
    pmix_value_t v;

    PMIX_VALUE_CONSTRUCT(&v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = (char *)mine; /* PMIx_Put copies */
    v.data.bo.size = bytes;
    PMIX_TRY(PMIx_Put(PMIX_GLOBAL, key, &v));
    PMIX_TRY(PMIx_Commit());
    return 0;
}

static int pmix_meet(struct boot *b, struct k3_error *err)
{
    pmix_proc_t job;
    pmix_info_t collect;
    bool yes = true;

    PMIX_LOAD_PROCID(&job, b->me.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    PMIX_TRY(PMIx_Fence(&job, 1, &collect, 1));
    return 0;
}

/* A fence succeeds for the survivors when a rank has died, so what it collected is asked for rank by rank, and nobody
 * waits for what it did not collect. */
static int pmix_hear(struct boot *b, int rank, const char *key, void *said, size_t bytes, struct k3_error *err)
{
    pmix_proc_t peer;
    pmix_info_t at_once;
    pmix_value_t *v;
    bool yes = true;

    PMIX_LOAD_PROCID(&peer, b->me.nspace, (pmix_rank_t)rank);
    PMIX_INFO_LOAD(&at_once, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    pmix_status_t status = PMIx_Get(&peer, key, &at_once, 1, &v);
    if (status != PMIX_SUCCESS) {
        errno = EIO;
        return k3_errorf(err, "rank %d did not say its %s: %s", rank, key, PMIx_Error_string(status));
    }
    int right = v->type == PMIX_BYTE_OBJECT && v->data.bo.size == bytes;
    if (right)
        memcpy(said, v->data.bo.bytes, bytes);
    PMIX_VALUE_RELEASE(v);
    if (!right) {
        errno = EPROTO;
        return k3_errorf(err, "rank %d said a %s of another length: it runs another version", rank, key);
    }
    return 0;
}

static int exchange(struct boot *b, const char *key, const void *mine, size_t bytes, void *all, struct k3_error *err)
{
    if (pmix_say(key, mine, bytes, err) < 0 || pmix_meet(b, err) < 0)
        return -1;
    for (int r = 0; r < b->size; r++)
        if (pmix_hear(b, r, key, (char *)all + (size_t)r * bytes, bytes, err) < 0)
            return -1;
    return 0;
}

#endif

struct boot *boot_create(struct k3_error *err)
{
    struct boot *b = k3_zalloc(sizeof *b);
    char host[256] = "localhost";

    gethostname(host, sizeof host - 1);
    b->size = 1;
    b->node = k3_strdup(host);
    if (!getenv("PMIX_RANK"))
        return b;
#ifdef HAVE_PMIX
    if (pmix_join(b, err) == 0)
        return b;
#else
    errno = ENOTSUP;
    k3_errorf(err, "started as a rank by PMIx, but this build has no PMIx: configure --with-pmix");
#endif
    boot_destroy(b);
    return NULL;
}

void boot_destroy(struct boot *b)
{
    if (!b)
        return;

    int saved = errno;
#ifdef HAVE_PMIX
    if (b->joined)
        PMIx_Finalize(NULL, 0);
#endif
    free(b->node);
    free(b);
    errno = saved;
}

int boot_rank(const struct boot *b)
{
    return b->rank;
}

int boot_size(const struct boot *b)
{
    return b->size;
}

const char *boot_node(const struct boot *b)
{
    return b->node;
}

int boot_exchange(struct boot *b, const char *key, const void *mine, size_t bytes, void *all, struct k3_error *err)
{
#ifdef HAVE_PMIX
    if (b->joined)
        return exchange(b, key, mine, bytes, all, err);
#endif
    (void)b, (void)key, (void)err;
    memcpy(all, mine, bytes);
    return 0;
}

void boot_abort(struct boot *b, int code, const char *why)
{
#ifdef HAVE_PMIX
    if (b->joined)
        PMIx_Abort(code, why, NULL, 0);
#endif
    (void)b, (void)why;
    _exit(code);
}
