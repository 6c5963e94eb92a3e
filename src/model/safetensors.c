#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/alloc.h"
#include "model/jsontext.h"

/* The format's own limit on a header; K3's index of 497,220 names takes 60 MB. */
enum { HEADER_BYTES_MAX = 100000000, INDEX_BYTES_MAX = 100000000 };
enum { HEADER_DEPTH_MAX = 4, FILES_MAX = 4096, NAME_BYTES_MAX = 250 };

struct mapped_file {
    char *path;
    int fd;
    const uint8_t *map, *data;
    uint64_t size, data_size;
};

struct safetensors {
    struct mapped_file *files;
    int file_count;
    struct safetensors_tensor *tensors;
    size_t count, room;
    uint32_t *slots; /* open addressing: index + 1 of a tensor, 0 for none */
    size_t slot_mask;
};

static const struct dtype {
    const char *name;
    int bytes;
} dtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
              {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
              {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8}};

static const struct dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

int64_t safetensors_bytes(const char *name, int dims, const int64_t *shape)
{
    const struct dtype *dtype = find_dtype(name);
    int64_t n = dtype ? dtype->bytes : -1;

    for (int d = 0; d < dims && n >= 0; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(n, shape[d], &n))
            return -1;
    return n;
}

/* Names are printed and logged, and end in file names nowhere; still no terminal should obey them. */
static int check_name(const char *file, const char *name, struct k3_error *err)
{
    size_t len = strlen(name);

    if (len == 0 || len > NAME_BYTES_MAX)
        return k3_errorf(err, "%s: a tensor's name has %zu bytes, not 1 to %d", file, len, NAME_BYTES_MAX);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return k3_errorf(err, "%s: a tensor's name holds control characters", file);
    return 0;
}

/* --- names to tensors --------------------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a */

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3;
    return h ^ h >> 32;
}

static uint32_t *find_slot(const struct safetensors *st, const char *name)
{
    size_t i = hash_name(name) & st->slot_mask;

    while (st->slots[i] && strcmp(st->tensors[st->slots[i] - 1].name, name) != 0)
        i = (i + 1) & st->slot_mask;
    return &st->slots[i];
}

static int index_names(struct safetensors *st, struct k3_error *err)
{
    size_t room = 16;

    while (room < 2 * st->count)
        room *= 2;
    if (!(st->slots = k3_try_alloc(room, sizeof *st->slots)))
        return k3_errorf(err, "no memory for the names of %zu tensors", st->count);
    st->slot_mask = room - 1;
    for (size_t i = 0; i < st->count; i++) {
        uint32_t *slot = find_slot(st, st->tensors[i].name);
        if (*slot)
            return k3_errorf(err, "%s: tensor %s is in %s too", st->files[st->tensors[i].file].path,
                             st->tensors[i].name, st->files[st->tensors[*slot - 1].file].path);
        *slot = (uint32_t)i + 1;
    }
    return 0;
}

/* --- one file ------------------------------------------------------------------------------------------------------
 */

static int map_file(struct mapped_file *f, struct k3_error *err)
{
    struct stat sb;

    if ((f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0 || fstat(f->fd, &sb) < 0)
        return k3_errorf(err, "%s: %s", f->path, strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return k3_errorf(err, "%s: not a regular file", f->path);
    if (sb.st_size < 8)
        return k3_errorf(err, "%s: %lld bytes are too few for a safetensors file", f->path, (long long)sb.st_size);
    f->size = (uint64_t)sb.st_size;
    void *map = mmap(NULL, f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED)
        return k3_errorf(err, "%s: mapping %llu bytes: %s", f->path, (unsigned long long)f->size, strerror(errno));
    f->map = map;
    return 0;
}

/* A list of at most max integers >= 0; -1 when it is anything else. */
static int read_integers(const json_t *list, int64_t *value, int max)
{
    if (!json_is_array(list) || json_array_size(list) > (size_t)max)
        return -1;
    int n = (int)json_array_size(list);
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return -1;
        value[i] = json_integer_value(v);
    }
    return n;
}

/* Fill in t from its entry in the header; t->name is the header's own until the caller copies it. */
static int read_entry(const struct mapped_file *f, const char *name, const json_t *entry, struct safetensors_tensor *t,
                      struct k3_error *err)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    const struct dtype *dtype = type ? find_dtype(type) : NULL;
    int64_t span[2];

    if (check_name(f->path, name, err) < 0)
        return -1;
    if (!dtype)
        return k3_errorf(err, "%s: tensor %s has no dtype or one that is unknown", f->path, name);
    t->dims = read_integers(json_object_get(entry, "shape"), t->shape, SAFETENSORS_DIMS_MAX);
    if (t->dims < 0)
        return k3_errorf(err, "%s: tensor %s: shape is not a list of at most %d sizes", f->path, name,
                         SAFETENSORS_DIMS_MAX);
    if (read_integers(json_object_get(entry, "data_offsets"), span, 2) != 2)
        return k3_errorf(err, "%s: tensor %s: data_offsets is not a pair of offsets", f->path, name);
    if (span[0] > span[1] || (uint64_t)span[1] > f->data_size)
        return k3_errorf(err, "%s: tensor %s: data_offsets [%lld, %lld] do not lie in the file's %llu bytes of data",
                         f->path, name, (long long)span[0], (long long)span[1], (unsigned long long)f->data_size);
    if (safetensors_bytes(dtype->name, t->dims, t->shape) != span[1] - span[0])
        return k3_errorf(err, "%s: tensor %s: its shape and dtype %s do not make the %lld bytes of its data_offsets",
                         f->path, name, dtype->name, (long long)(span[1] - span[0]));
    t->dtype = dtype->name;
    t->data = f->data + span[0];
    t->bytes = (uint64_t)(span[1] - span[0]);
    t->name = name;
    return 0;
}

static int by_data(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->data != y->data)
        return (const uint8_t *)x->data < (const uint8_t *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones before what begins at the same place */
}

static uint64_t begin_of(const struct safetensors *st, const struct safetensors_tensor *t)
{
    return (uint64_t)((const uint8_t *)t->data - st->files[t->file].data);
}

/* t: a file's tensors in the order of their data. */
static int check_overlap(const struct safetensors *st, const struct safetensors_tensor *t, size_t count,
                         struct k3_error *err)
{
    uint64_t end = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t begin = begin_of(st, &t[i]);
        if (begin < end)
            return k3_errorf(err, "%s: tensor %s begins at %llu, but the one before it ends at %llu: they overlap",
                             safetensors_file(st, t[i].file), t[i].name, (unsigned long long)begin,
                             (unsigned long long)end);
        end = begin + t[i].bytes;
    }
    return 0;
}

static int add_tensors(struct safetensors *st, int file, const json_t *header, struct k3_error *err)
{
    const struct mapped_file *f = &st->files[file];
    size_t first = st->count, more = json_object_size(header);
    const char *name;
    json_t *entry;

    if (st->count + more > st->room) {
        st->room = 2 * st->room + more;
        st->tensors = k3_reallocarray(st->tensors, st->room, sizeof *st->tensors);
    }
    json_object_foreach((json_t *)header, name, entry)
    {
        struct safetensors_tensor *t = &st->tensors[st->count];
        if (strcmp(name, "__metadata__") == 0)
            continue;
        *t = (struct safetensors_tensor){.file = file};
        if (read_entry(f, name, entry, t, err) < 0)
            return -1;
        t->name = k3_strdup(name);
        st->count++;
    }
    qsort(st->tensors + first, st->count - first, sizeof *st->tensors, by_data);
    return check_overlap(st, st->tensors + first, st->count - first, err);
}

/* Takes path. */
static int add_file(struct safetensors *st, char *path, struct k3_error *err)
{
    struct mapped_file *f = &st->files[st->file_count];
    uint64_t header_size = 0;

    *f = (struct mapped_file){.path = path, .fd = -1};
    st->file_count++;
    if (map_file(f, err) < 0)
        return -1;
    for (int i = 7; i >= 0; i--)
        header_size = header_size << 8 | f->map[i];
    if (header_size > HEADER_BYTES_MAX)
        return k3_errorf(err, "%s: a header of %llu bytes, more than the %d that the format allows", path,
                         (unsigned long long)header_size, HEADER_BYTES_MAX);
    if (header_size > f->size - 8)
        return k3_errorf(err, "%s: a header of %llu bytes in a file of %llu: not safetensors, or cut short", path,
                         (unsigned long long)header_size, (unsigned long long)f->size);
    f->data = f->map + 8 + header_size;
    f->data_size = f->size - 8 - header_size;

    json_t *header = jsontext_parse(path, (const char *)f->map + 8, header_size, HEADER_DEPTH_MAX, err);
    if (!header)
        return -1;
    int rc = add_tensors(st, st->file_count - 1, header, err);
    json_decref(header);
    return rc;
}

/* --- several files ---------------------------------------------------------------------------------------------------
 */

/* An index names files of its own directory, nothing else. */
static int check_file_name(const char *index, const json_t *file, struct k3_error *err)
{
    const char *name = json_string_value(file);

    if (!name || !*name || *name == '.' || strchr(name, '/') || strlen(name) > NAME_BYTES_MAX)
        return k3_errorf(err, "%s: weight_map holds something that is not the name of a file beside it", index);
    return 0;
}

/* Each tensor that the index names lies in the file that it says, and the files hold no others. */
static int check_index(const struct safetensors *st, const char *dir, const char *index, const json_t *map,
                       struct k3_error *err)
{
    const char *name;
    json_t *file;

    json_object_foreach((json_t *)map, name, file)
    {
        const struct safetensors_tensor *t = safetensors_find(st, name);
        if (!t)
            return k3_errorf(err, "%s: tensor %.*s is not in %s", index, NAME_BYTES_MAX, name, json_string_value(file));
        if (strcmp(st->files[t->file].path + strlen(dir) + 1, json_string_value(file)) != 0)
            return k3_errorf(err, "%s: tensor %s is not in %s but in %s", index, name, json_string_value(file),
                             st->files[t->file].path);
    }
    for (size_t i = 0; i < st->count; i++)
        if (!json_object_get(map, st->tensors[i].name))
            return k3_errorf(err, "%s: tensor %s is not in the index %s", st->files[st->tensors[i].file].path,
                             st->tensors[i].name, index);
    return 0;
}

static int check_total(const struct safetensors *st, const char *index, const json_t *root, struct k3_error *err)
{
    const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    uint64_t bytes = 0;

    for (size_t i = 0; i < st->count; i++)
        bytes += st->tensors[i].bytes;
    if (json_is_integer(total) && (uint64_t)json_integer_value(total) != bytes)
        return k3_errorf(err, "%s: total_size is %lld, but the files hold %llu bytes of tensors", index,
                         (long long)json_integer_value(total), (unsigned long long)bytes);
    return 0;
}

static int open_files(struct safetensors *st, const char *dir, const char *index, const json_t *root,
                      struct k3_error *err)
{
    const json_t *map = json_object_get(root, "weight_map");
    json_t *distinct = json_object(), *file;
    const char *name;
    int rc = -1;

    if (!json_is_object(map)) {
        k3_errorf(err, "%s: weight_map is missing or not an object", index);
        goto out;
    }
    json_object_foreach((json_t *)map, name, file)
    {
        if (check_name(index, name, err) < 0 || check_file_name(index, file, err) < 0)
            goto out;
        json_object_set(distinct, json_string_value(file), json_true());
    }
    if (json_object_size(distinct) > FILES_MAX) {
        k3_errorf(err, "%s: names %zu files, more than %d", index, json_object_size(distinct), FILES_MAX);
        goto out;
    }
    st->files = k3_calloc(json_object_size(distinct), sizeof *st->files);
    json_object_foreach(distinct, name, file) if (add_file(st, k3_asprintf("%s/%s", dir, name), err) < 0) goto out;
    if (index_names(st, err) < 0 || check_index(st, dir, index, map, err) < 0 || check_total(st, index, root, err) < 0)
        goto out;
    rc = 0;
out:
    json_decref(distinct);
    return rc;
}

/* --- the interface -------------------------------------------------------------------------------------------------
 */

struct safetensors *safetensors_open(const char *path, struct k3_error *err)
{
    struct safetensors *st = k3_zalloc(sizeof *st);

    st->files = k3_calloc(1, sizeof *st->files);
    if (add_file(st, k3_strdup(path), err) < 0 || index_names(st, err) < 0) {
        safetensors_close(st);
        return NULL;
    }
    return st;
}

static struct safetensors *open_indexed(const char *dir, const char *index, struct k3_error *err)
{
    struct safetensors *st = NULL;
    json_t *root = NULL;
    size_t len;
    char *text = jsontext_load(index, INDEX_BYTES_MAX, &len, err);

    if (text && (root = jsontext_parse(index, text, len, HEADER_DEPTH_MAX, err))) {
        st = k3_zalloc(sizeof *st);
        if (open_files(st, dir, index, root, err) < 0) {
            safetensors_close(st);
            st = NULL;
        }
    }
    json_decref(root);
    free(text);
    return st;
}

int safetensors_is_in(const char *dir)
{
    char *single = k3_asprintf("%s/model.safetensors", dir);
    char *index = k3_asprintf("%s/model.safetensors.index.json", dir);
    int there = access(single, F_OK) == 0 || access(index, F_OK) == 0;

    free(single);
    free(index);
    return there;
}

struct safetensors *safetensors_open_dir(const char *dir, struct k3_error *err)
{
    char *single = k3_asprintf("%s/model.safetensors", dir);
    char *index = k3_asprintf("%s/model.safetensors.index.json", dir);
    struct safetensors *st = NULL;

    if (access(single, F_OK) == 0)
        st = safetensors_open(single, err);
    else if (access(index, F_OK) == 0)
        st = open_indexed(dir, index, err);
    else
        k3_errorf(err, "%s: holds neither model.safetensors nor model.safetensors.index.json", dir);
    free(single);
    free(index);
    return st;
}

void safetensors_close(struct safetensors *st)
{
    int saved = errno;

    if (!st)
        return;
    for (size_t i = 0; i < st->count; i++)
        free((char *)st->tensors[i].name);
    for (int i = 0; i < st->file_count; i++) {
        if (st->files[i].map)
            munmap((void *)st->files[i].map, st->files[i].size);
        if (st->files[i].fd >= 0)
            close(st->files[i].fd);
        free(st->files[i].path);
    }
    free(st->files);
    free(st->tensors);
    free(st->slots);
    free(st);
    errno = saved;
}

int safetensors_check_gaps(const struct safetensors *st, struct k3_error *err)
{
    size_t i = 0;

    for (int file = 0; file < st->file_count; file++) {
        const struct mapped_file *f = &st->files[file];
        uint64_t end = 0;
        for (; i < st->count && st->tensors[i].file == file; i++) {
            const struct safetensors_tensor *t = &st->tensors[i];
            if (begin_of(st, t) != end)
                return k3_errorf(err, "%s: tensor %s begins at %llu, but the one before it ends at %llu: a gap",
                                 f->path, t->name, (unsigned long long)begin_of(st, t), (unsigned long long)end);
            end += t->bytes;
        }
        if (end != f->data_size)
            return k3_errorf(err, "%s: the last tensor ends at %llu of %llu bytes of data", f->path,
                             (unsigned long long)end, (unsigned long long)f->data_size);
    }
    return 0;
}

size_t safetensors_count(const struct safetensors *st)
{
    return st->count;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *st, size_t i)
{
    return &st->tensors[i];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    uint32_t i = *find_slot(st, name);

    return i ? &st->tensors[i - 1] : NULL;
}

size_t safetensors_index(const struct safetensors *st, const struct safetensors_tensor *t)
{
    return (size_t)(t - st->tensors);
}

const char *safetensors_file(const struct safetensors *st, int file)
{
    return st->files[file].path;
}

/* Advice on whole pages of the mapping; failure costs speed only. */
static void advise(const void *data, uint64_t bytes, int advice)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data & ~(page - 1);

    if (bytes)
        madvise((void *)begin, (uintptr_t)data + bytes - begin, advice);
}

void safetensors_will_read(const void *data, uint64_t bytes)
{
    advise(data, bytes, MADV_WILLNEED);
}

void safetensors_drop(const struct safetensors *st, const struct safetensors_tensor *t)
{
    const struct mapped_file *f = &st->files[t->file];

    advise(t->data, t->bytes, MADV_DONTNEED); /* the page cache keeps what is mapped */
    if (t->bytes)
        posix_fadvise(f->fd, (const uint8_t *)t->data - f->map, (off_t)t->bytes, POSIX_FADV_DONTNEED);
}
