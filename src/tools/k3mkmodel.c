/* k3mkmodel - make a synthetic Kimi K3 checkpoint from a config: right names, shapes, dtypes and packing, random
 * weights */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

#include "common/alloc.h"
#include "common/error.h"
#include "model/config.h"
#include "model/inventory.h"
#include "model/jsontext.h"
#include "model/synthetic.h"
#include "tools/jsondump.h"

enum { CONFIG_BYTES_MAX = 4 << 20, CONFIG_DEPTH_MAX = 32, VOCABULARY_BYTES_MAX = 64 << 20 };
enum { SPECIALS = 256 }; /* of a K3 vocabulary, after its base tokens */

/* The named slots, counted from the first special one (SPEC 7.1). */
static const struct special {
    int slot;
    const char *text;
    int special; /* "skip special tokens" drops it */
} specials[] = {
    {0, "[BOS]", 1},
    {1, "[EOS]", 1},
    {2, "<|end_of_msg|>", 1},
    {3, "<|open|>", 0},
    {4, "<|close|>", 0},
    {5, "<|sep|>", 0},
    {6, "[start_header_id]", 1},
    {7, "[end_header_id]", 1},
    {9, "[EOT]", 1},
    {18, "<|media_begin|>", 1},
    {19, "<|media_content|>", 1},
    {20, "<|media_end|>", 1},
    {21, "<|media_pad|>", 1},
    {65, "<osagent_mode>", 1},
    {254, "[UNK]", 1},
    {255, "[PAD]", 1},
};

/* The files that this program makes, and so may overwrite. */
static const char *const ours[] = {
    "config.json",           "config.json.partial",           "tiktoken.model",    "tiktoken.model.partial",
    "tokenizer_config.json", "tokenizer_config.json.partial", "model.safetensors", "model.safetensors.partial"};

static int make_directories(const char *path, struct k3_error *err)
{
    char *copy = k3_strdup(path);
    int rc = 0;

    for (char *c = copy + 1; rc == 0; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        char end = *c;
        *c = '\0';
        if (mkdir(copy, 0777) < 0 && errno != EEXIST)
            rc = k3_errorf(err, "%s: %s", copy, strerror(errno));
        *c = end;
        if (!end)
            break;
    }
    free(copy);
    return rc;
}

static int is_ours(const char *name)
{
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0)
            return 1;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Nothing that somebody else put there is mixed up with a synthetic checkpoint, or lost to it. */
static int check_directory(const char *path, struct k3_error *err)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rc = 0;

    if (!dir)
        return k3_errorf(err, "%s: %s", path, strerror(errno));
    while (rc == 0 && (entry = readdir(dir)))
        if (!is_ours(entry->d_name))
            rc = k3_errorf(err, "%s: holds %s, which is not from k3mkmodel: choose an empty directory", path,
                           entry->d_name);
    closedir(dir);
    return rc;
}

/* One small file of the checkpoint, while it is written under a temporary name. */
struct output {
    char *path, *partial;
    FILE *file;
};

static int output_open(struct output *o, const char *dir, const char *name, struct k3_error *err)
{
    o->path = k3_asprintf("%s/%s", dir, name);
    o->partial = k3_asprintf("%s.partial", o->path);
    if (!(o->file = fopen(o->partial, "we")))
        return k3_errorf(err, "%s: %s", o->partial, strerror(errno));
    return 0;
}

static int output_close(struct output *o, struct k3_error *err)
{
    int rc = 0;

    if (o->file) {
        int failed = ferror(o->file);
        if (fclose(o->file) < 0 || failed || rename(o->partial, o->path) < 0) {
            rc = k3_errorf(err, "%s: %s", o->path, strerror(errno));
            unlink(o->partial);
        }
    }
    free(o->path);
    free(o->partial);
    return rc;
}

static int write_json(const char *dir, const char *name, const json_t *value, struct k3_error *err)
{
    struct output o = {0};
    int rc = output_open(&o, dir, name, err);

    if (rc == 0)
        jsondump(value, o.file);
    return output_close(&o, err) < 0 ? -1 : rc;
}

static json_t *tokenizer_config(int base)
{
    json_t *added = json_object();
    char id[16];

    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        snprintf(id, sizeof id, "%d", base + specials[i].slot);
        json_object_set_new(added, id,
                            json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", specials[i].text, "lstrip", 0,
                                      "normalized", 0, "rstrip", 0, "single_word", 0, "special", specials[i].special));
    }
    return json_pack("{s:o, s:s, s:s, s:s, s:s}", "added_tokens_decoder", added, "bos_token", "[BOS]", "eos_token",
                     "[EOS]", "pad_token", "[PAD]", "unk_token", "[UNK]");
}

static char *vocabulary_path(int base)
{
    const char *data = getenv("K3_DATADIR");

    return k3_asprintf("%s/tokenizer/toy-%d.tiktoken", data && *data ? data : K3_DATADIR, base);
}

/* An earlier checkpoint's tokenizer must not stay with this one. */
static int remove_tokenizer(const char *dir, struct k3_error *err)
{
    static const char *const names[] = {"tiktoken.model", "tokenizer_config.json"};
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0; i++) {
        char *path = k3_asprintf("%s/%s", dir, names[i]);
        if (unlink(path) < 0 && errno != ENOENT)
            rc = k3_errorf(err, "%s: %s", path, strerror(errno));
        free(path);
    }
    return rc;
}

/* A tokenizer, where a toy vocabulary of this many base tokens is installed. */
static int write_tokenizer(const char *dir, int vocab, struct k3_error *err)
{
    int base = vocab - SPECIALS, rc = -1;
    char *path = vocabulary_path(base), *ranks = NULL;
    json_t *config = NULL;
    struct output o = {0};
    size_t len;

    if (access(path, F_OK) < 0 && errno == ENOENT) {
        fprintf(stderr, "k3mkmodel: no tokenizer written: there is no %s for a vocabulary of %d\n", path, vocab);
        rc = remove_tokenizer(dir, err);
        goto out;
    }
    if (!(ranks = jsontext_load(path, VOCABULARY_BYTES_MAX, &len, err)))
        goto out;
    rc = output_open(&o, dir, "tiktoken.model", err);
    if (rc == 0)
        fwrite(ranks, 1, len, o.file);
    if (output_close(&o, err) < 0 || rc < 0) {
        rc = -1;
        goto out;
    }
    config = tokenizer_config(base);
    rc = write_json(dir, "tokenizer_config.json", config, err);
out:
    json_decref(config);
    free(ranks);
    free(path);
    return rc;
}

static void print_totals(const struct k3_config *c)
{
    struct inventory_iter it;
    struct tensor_desc t;
    unsigned long long tensors = 0, bytes = 0;

    for (inventory_begin(&it, c); inventory_next(&it, &t);) {
        tensors++;
        bytes += t.bytes;
    }
    printf("%llu tensors, %llu bytes\n", tensors, bytes);
}

/* The weights come first: they are what a full disk or a signal interrupts. */
static int make_model(const struct k3_config *c, const json_t *config, const char *dir, struct k3_error *err)
{
    char *model = k3_asprintf("%s/model.safetensors", dir);
    int rc = -1;

    if (make_directories(dir, err) == 0 && check_directory(dir, err) == 0 && synthetic_write(c, model, err) == 0 &&
        write_json(dir, "config.json", config, err) == 0 && write_tokenizer(dir, c->vocab, err) == 0)
        rc = 0;
    free(model);
    return rc;
}

static const char usage[] = "Usage: k3mkmodel [--dry-run] CONFIG.json OUTDIR\n";
static const char help[] =
    "Make a synthetic Kimi K3 checkpoint: config.json, model.safetensors and, for the toy vocabularies that are\n"
    "installed, tiktoken.model and tokenizer_config.json.\n\n"
    "  --dry-run      print the number of tensors and bytes, write nothing (OUTDIR may be left out)\n"
    "  -h, --help     this text\n"
    "  --usage        one line\n"
    "  -V, --version  the version\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {{"dry-run", no_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"usage", no_argument, NULL, 'u'},
                                            {"version", no_argument, NULL, 'V'},
                                            {0}};
    struct k3_config config;
    struct k3_error err = {""};
    json_t *json = NULL;
    int dry_run = 0, option, rc = 1;
    size_t len;

    while ((option = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
        switch (option) {
        case 'n':
            dry_run = 1;
            break;
        case 'h':
            printf("%s%s", usage, help);
            return 0;
        case 'u':
            fputs(usage, stdout);
            return 0;
        case 'V':
            printf("k3mkmodel %s\n", PACKAGE_VERSION);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (argc - optind != 2 && !(dry_run && argc - optind == 1)) {
        fputs(usage, stderr);
        return 2;
    }

    const char *path = argv[optind];
    char *text = jsontext_load(path, CONFIG_BYTES_MAX, &len, &err);
    if (!text || !(json = jsontext_parse(path, text, len, CONFIG_DEPTH_MAX, &err)) ||
        k3_config_parse(path, text, len, &config, &err) < 0)
        goto out;
    if (!dry_run && make_model(&config, json, argv[optind + 1], &err) < 0)
        goto out;
    print_totals(&config);
    rc = 0;
out:
    if (rc)
        fprintf(stderr, "k3mkmodel: %s\n", err.text);
    json_decref(json);
    free(text);
    return rc;
}
