/* k3pack - a checkpoint's weights as one file a rank, as the rank will have them in its memory */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "comm/boot.h"
#include "common/alloc.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/fault.h"
#include "common/log.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/jsontext.h"
#include "model/pack.h"
#include "model/safetensors.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { THREADS_MOST = 64, COPIED_BYTES = 64 << 20 };

static const char usage_text[] =
    "Usage: k3pack --model=DIR --out=DIR --layout=LAYOUT [OPTION...]\n"
    "       k3pack --verify --out=DIR [--rank=R]\n"
    "Write a checkpoint's weights as one file a rank, which the engine loads in large reads.  What is there already "
    "and\n"
    "right stays, so a k3pack that was stopped goes on.  Under mpirun or srun --mpi=pmix the ranks are shared out.\n\n"
    "  --model=DIR            the checkpoint\n"
    "  --out=DIR              where the packs are written, with what else an engine needs of the checkpoint\n"
    "  --layout=LAYOUT        tp=N,pp=N,ep=N: ranks of a stage, stages, groups that share out experts; 1 if not named\n"
    "  --tp=N                 the same as --layout=tp=N\n"
    "  --rank=R               only this one (default: all)\n"
    "  --dense=FORM           bf16, as in the checkpoint, fp8 or mxfp8: of the dense matrices (default bf16)\n"
    "  --verify               read back what was written; alone: what is there\n"
    "  --threads=N            (default: the cores)\n"
    "  -q, --quiet            no progress\n"
    "  -h, --help             this text\n"
    "  -V, --version          the version\n";

struct options {
    const char *model, *out;
    enum k3_dtype dense;
    struct layout layout; /* tp 0: not given */
    int rank, threads;    /* rank -1: all */
    int verify, quiet;
};

struct run {
    const struct options *o;
    struct k3_config config;
    int rank[LAYOUT_RANKS_MAX], ranks; /* those of this process */
    double next;                       /* when progress is said again */
};

/* --- command line ------------------------------------------------------------------------------------------------- */

static int parse_number(const char *option, const char *text, int least, int most, int *value)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end != text && !*end && n >= least && n <= most) {
        *value = (int)n;
        return 0;
    }
    fprintf(stderr, "k3pack: --%s '%s': a number from %d to %d\n", option, text, least, most);
    return -1;
}

static int parse_layout(const char *text, struct options *o)
{
    struct k3_error err;

    if (layout_parse(text, &o->layout, &err) == 0)
        return 0;
    fprintf(stderr, "k3pack: --layout: %s\n", err.text);
    return -1;
}

static int parse_dense(const char *text, struct options *o)
{
    o->dense = inventory_dense_parse(text);
    if (o->dense && o->dense != K3_MXFP4)
        return 0;
    fprintf(stderr, "k3pack: --dense '%s': bf16, fp8 or mxfp8\n", text);
    return -1;
}

static int take_option(int id, const char *text, struct options *o)
{
    switch (id) {
    case 'm':
        o->model = text;
        return 0;
    case 'o':
        o->out = text;
        return 0;
    case 't':
        o->layout = (struct layout){.pp = 1, .ep = 1};
        return parse_number("tp", text, 1, LAYOUT_RANKS_MAX, &o->layout.tp);
    case 'l':
        return parse_layout(text, o);
    case 'r':
        return parse_number("rank", text, 0, LAYOUT_RANKS_MAX - 1, &o->rank);
    case 'd':
        return parse_dense(text, o);
    case 'T':
        return parse_number("threads", text, 1, THREADS_MOST, &o->threads);
    case 'v':
        o->verify = 1;
        return 0;
    default:
        o->quiet = 1;
        return 0;
    }
}

static const char *misused(const struct options *o)
{
    if (!o->out)
        return "--out is missing: where the packs are";
    if (!o->model && !o->verify)
        return "--model is missing: the checkpoint";
    if (o->model && !o->layout.tp)
        return "--layout is missing: how the ranks divide the model";
    if (o->layout.tp && o->rank >= layout_ranks(&o->layout))
        return "--rank: the layout has fewer ranks";
    return NULL;
}

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option long_options[] = {
        {"model", required_argument, NULL, 'm'},
        {"out", required_argument, NULL, 'o'},
        {"tp", required_argument, NULL, 't'},
        {"layout", required_argument, NULL, 'l'},
        {"rank", required_argument, NULL, 'r'},
        {"dense", required_argument, NULL, 'd'},
        {"verify", no_argument, NULL, 'v'},
        {"threads", required_argument, NULL, 'T'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {"usage", no_argument, NULL, 'u'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };

    for (int id; (id = getopt_long(argc, argv, "qhV", long_options, NULL)) != -1;) {
        if (id == 'h' || id == 'u') {
            fwrite(usage_text, 1, id == 'h' ? strlen(usage_text) : (size_t)(strchr(usage_text, '\n') + 1 - usage_text),
                   stdout);
            return 0;
        }
        if (id == 'V') {
            printf("k3pack %s\n", PACKAGE_VERSION);
            return 0;
        }
        if (id == '?' || take_option(id, optarg, o) < 0)
            return EXIT_USAGE;
    }
    const char *wrong = optind < argc ? "only options are taken" : misused(o);
    if (!wrong)
        return -1;
    fprintf(stderr, "k3pack: %s\nTry 'k3pack --help'.\n", wrong);
    return EXIT_USAGE;
}

/* --- the directory ------------------------------------------------------------------------------------------------ */

/* What an engine reads of a checkpoint beside the weights. */
static const struct {
    const char *name;
    int needed;
} copied[] = {{"config.json", 1}, {"tiktoken.model", 0}, {"tokenizer_config.json", 0}};

static int copy_file(const char *from, const char *to, const char *name, int needed, struct k3_error *err)
{
    char *path = k3_asprintf("%s/%s", from, name), *text = NULL;
    size_t len;
    int rc = -1;

    if (!needed && access(path, F_OK) < 0)
        rc = 0;
    else if ((text = jsontext_load(path, COPIED_BYTES, &len, err)))
        rc = pack_put(to, name, text, len, err);
    free(text);
    free(path);
    return rc;
}

static int prepare(const struct options *o, struct k3_error *err)
{
    if (mkdir(o->out, 0777) < 0 && errno != EEXIST)
        return k3_errorf(err, "%s: %s", o->out, strerror(errno));
    if (safetensors_is_in(o->out)) {
        errno = EEXIST;
        return k3_errorf(err, "%s: has a checkpoint: choose another directory for its packs", o->out);
    }
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        if (copy_file(o->model, o->out, copied[i].name, copied[i].needed, err) < 0)
            return -1;
    return 0;
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

static void tell(uint64_t done, uint64_t total, void *arg)
{
    struct run *r = arg;
    double now = clock_monotonic();

    if (r->o->quiet || (now < r->next && done < total))
        return;
    r->next = now + 10;
    fprintf(stderr, "k3pack: %5.1f %% of %.2f GB\n", 100 * (double)done / (double)total, 1e-9 * (double)total);
}

/* By role, over all ranks of this process. */
static void print_errors(const struct pack_written *written, int ranks)
{
    int said = 0;

    for (int role = 0; role < T_ROLES; role++) {
        struct quantize_error e = {0};
        int tensors = 0;
        for (int i = 0; i < ranks; i++) {
            tensors += written[i].role[role].tensors;
            quantize_error_add(&e, &written[i].role[role].error);
        }
        if (!tensors)
            continue;
        if (!said++)
            printf("%-50s %8s %10s %10s\n", "matrix", "tensors", "relative", "largest");
        printf("%-50s %8d %10.3g %10.3g\n", inventory_name(role), tensors, quantize_relative(&e), e.largest);
    }
}

static int pack(struct run *r, struct k3_error *err)
{
    const struct options *o = r->o;
    struct pack_written *written = k3_calloc((size_t)r->ranks, sizeof *written);
    char *source = realpath(o->model, NULL);
    struct checkpoint *cp = NULL;
    char name[LAYOUT_NAME];
    int rc = -1;

    if (k3_config_load(o->model, &r->config, err) < 0 || !(cp = checkpoint_open(o->model, &r->config, 0, err)) ||
        prepare(o, err) < 0)
        goto out;
    if (layout_check(&r->config, &o->layout, err) < 0)
        goto out;
    r->config.dense = o->dense;
    rc = pack_write(&(struct pack_writing){.dir = o->out,
                                           .checkpoint = cp,
                                           .source = source ? source : o->model,
                                           .config = &r->config,
                                           .layout = &o->layout,
                                           .rank = r->rank,
                                           .ranks = r->ranks,
                                           .threads = o->threads,
                                           .progress = tell,
                                           .arg = r},
                    written, err);
    for (int i = 0; rc == 0 && i < r->ranks; i++)
        printf("rank %d of %s: %llu bytes, %llu of them were there\n", r->rank[i], layout_name(&o->layout, name),
               (unsigned long long)written[i].bytes, (unsigned long long)written[i].kept);
    if (rc == 0)
        print_errors(written, r->ranks);
out:
    checkpoint_close(cp);
    free(source);
    free(written);
    return rc;
}

static int verify(struct run *r, struct k3_error *err)
{
    const struct weights_loading how = {.progress = tell, .arg = r};
    char name[LAYOUT_NAME];
    struct k3_stream *stream = kern_stream_create("ref", 1);
    int rc = stream ? 0 : k3_errorf(err, "backend ref: %s", strerror(errno));

    for (int i = 0; rc == 0 && i < r->ranks; i++) {
        struct shard sh = layout_shard(&r->o->layout, r->rank[i]);
        struct pack *p = pack_open(r->o->out, &r->config, &sh, err);
        rc = p ? pack_read(p, NULL, stream, &how, err) : -1;
        if (rc == 0)
            printf("rank %d of %s: %llu bytes are what their hashes say\n", r->rank[i],
                   layout_name(&r->o->layout, name), (unsigned long long)pack_bytes(p));
        pack_close(p);
    }
    kern_stream_destroy(stream);
    return rc;
}

/* All ranks of the layout, one, or of all those that fall to this process. */
static void share_out(struct run *r, const struct boot *b)
{
    if (r->o->rank >= 0) {
        r->rank[r->ranks++] = r->o->rank;
        return;
    }
    for (int rank = boot_rank(b); rank < layout_ranks(&r->o->layout); rank += boot_size(b))
        r->rank[r->ranks++] = rank;
}

/* Alone, --verify takes the layout that is there. */
static int look(struct options *o, struct k3_error *err)
{
    struct packinfo info;

    if (o->model)
        return 0;
    if (packinfo_read(o->out, &info, err) < 0)
        return -1;
    if (!o->layout.tp)
        o->layout = info.layout;
    return 0;
}

static int run(struct options *o, struct k3_error *err)
{
    struct run *r = k3_zalloc(sizeof *r);
    struct boot *b = NULL;
    int rc = -1;

    r->o = o;
    if (look(o, err) < 0 || !(b = boot_create(err)))
        goto out;
    share_out(r, b);
    if (r->ranks == 0)
        rc = 0;
    else if ((!o->model || pack(r, err) == 0) &&
             (!o->verify || (k3_config_load(o->out, &r->config, err) == 0 && verify(r, err) == 0)))
        rc = 0;
out:
    boot_destroy(b);
    free(r);
    return rc;
}

int main(int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct options o = {.dense = K3_BF16,
                        .rank = -1,
                        .threads = cores < 1              ? 1
                                   : cores > THREADS_MOST ? THREADS_MOST
                                                          : (int)cores};
    struct k3_error err = {""};

    fault_init();
    k3_log_init("k3pack", LOG_WARNING);
    int status = parse_options(argc, argv, &o);
    if (status >= 0)
        return status;
    if (sodium_init() < 0 || run(&o, &err) < 0) {
        fprintf(stderr, "k3pack: %s\n", err.text);
        return EXIT_FAILED;
    }
    return fflush(stdout) != 0 ? EXIT_FAILED : EXIT_SUCCESS;
}
