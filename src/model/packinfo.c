#include "model/packinfo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/alloc.h"
#include "model/inventory.h"
#include "model/jsontext.h"

enum { VERSION = 1, BYTES_MAX = 1 << 16, DEPTH_MAX = 4 };

json_t *packinfo_encode(const struct packinfo *info)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:s}", "format", "k3pack", "version", VERSION, "tp",
                     info->layout.tp, "pp", info->layout.pp, "ep", info->layout.ep, "dense",
                     inventory_dense_name(info->dense), "model", info->model, "stamp", info->stamp);
}

static int get_number(const char *file, const json_t *o, const char *key, int most, int *value, struct k3_error *err)
{
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);

    errno = EINVAL;
    if (!json_is_integer(v) || n < 1 || n > most)
        return k3_errorf(err, "%s: %s is not a number from 1 to %d", file, key, most);
    *value = (int)n;
    return 0;
}

/* A hash: hex digits. */
static int get_hash(const char *file, const json_t *o, const char *key, char text[PACKINFO_HASH], struct k3_error *err)
{
    const char *v = json_string_value(json_object_get(o, key));

    errno = EINVAL;
    if (!v || strlen(v) != PACKINFO_HASH - 1 || strspn(v, "0123456789abcdef") != PACKINFO_HASH - 1)
        return k3_errorf(err, "%s: %s is not %d hex digits", file, key, PACKINFO_HASH - 1);
    memcpy(text, v, PACKINFO_HASH);
    return 0;
}

int packinfo_decode(const char *file, const json_t *o, struct packinfo *info, struct k3_error *err)
{
    const char *format = json_string_value(json_object_get(o, "format"));
    const char *dense = json_string_value(json_object_get(o, "dense"));
    struct layout *l = &info->layout;
    int version;

    errno = EINVAL;
    if (!format || strcmp(format, "k3pack") != 0)
        return k3_errorf(err, "%s: format is not k3pack", file);
    if (get_number(file, o, "version", 1 << 30, &version, err) < 0)
        return -1;
    if (version != VERSION)
        return k3_errorf(err, "%s: version is %d, and this k3 reads %d: run its own k3pack into another directory",
                         file, version, VERSION);
    if (get_number(file, o, "tp", LAYOUT_RANKS_MAX, &l->tp, err) < 0 ||
        get_number(file, o, "pp", LAYOUT_RANKS_MAX, &l->pp, err) < 0 ||
        get_number(file, o, "ep", LAYOUT_RANKS_MAX, &l->ep, err) < 0)
        return -1;
    errno = EINVAL;
    if (l->tp % l->ep || layout_ranks(l) > LAYOUT_RANKS_MAX)
        return k3_errorf(err, "%s: there is no layout of tp %d, pp %d and ep %d", file, l->tp, l->pp, l->ep);
    if (!dense || !(info->dense = inventory_dense_parse(dense)) || info->dense == K3_MXFP4)
        return k3_errorf(err, "%s: dense is not bf16, fp8 or mxfp8", file);
    return get_hash(file, o, "model", info->model, err) < 0 || get_hash(file, o, "stamp", info->stamp, err) < 0 ? -1
                                                                                                                : 0;
}

static char *path_in(const char *dir)
{
    return k3_asprintf("%s/" PACKINFO_NAME, dir);
}

int packinfo_is_in(const char *dir)
{
    char *path = path_in(dir);
    int there = access(path, F_OK) == 0;

    free(path);
    return there;
}

int packinfo_read(const char *dir, struct packinfo *info, struct k3_error *err)
{
    char *path = path_in(dir), *text;
    json_t *root = NULL;
    size_t len;
    int rc = -1;

    if ((text = jsontext_load(path, BYTES_MAX, &len, err)) && (root = jsontext_parse(path, text, len, DEPTH_MAX, err)))
        rc = packinfo_decode(path, root, info, err);
    json_decref(root);
    free(text);
    free(path);
    return rc;
}
