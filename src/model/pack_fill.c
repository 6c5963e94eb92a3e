/* pack_fill.c - the image of a pack out of a checkpoint: copies, and matrices in a dense format row by row */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "model/pack_private.h"

/* One matrix on its way to codes and scales. */
struct matrix {
    enum k3_dtype form;
    struct shard_part part;
    struct tensor_desc desc;
    const uint8_t *data;          /* of the whole tensor */
    uint8_t *code, *scale;        /* of one row of the share */
    uint64_t code_row, scale_row; /* bytes of these */
};

static void matrix_open(struct matrix *m, const struct pack *p, const struct checkpoint *cp,
                        const struct weights_place *place)
{
    const struct tensor_id *id = &place->id;

    m->form = place->dtype;
    m->part = shard_of(&p->config, &p->shard, id->role);
    inventory_describe(&p->config, id->role, id->layer, id->expert, &m->desc);
    m->data = checkpoint_data(cp, id);
    m->code_row = (uint64_t)(m->part.col.end - m->part.col.begin);
    m->scale_row = m->form == K3_FP8_E4M3 ? sizeof(float) : m->code_row / K3_MX_BLOCK;
    m->code = k3_zalloc(m->code_row + 1);
    m->scale = k3_zalloc(m->scale_row + 1);
}

static void matrix_close(struct matrix *m)
{
    free(m->code);
    free(m->scale);
}

static const uint8_t *source_row(const struct matrix *m, int64_t row)
{
    return m->data + 2 * (m->part.row.begin + row) * m->part.cols;
}

static int quantize(struct matrix *m, int64_t row)
{
    return quantize_row(m->form, source_row(m, row), m->part.cols, m->part.col.begin, m->part.col.end, m->code,
                        m->scale);
}

/* Bytes [from, from + bytes) of the codes or scales.  A row that a chunk's end cuts is made twice. */
static int fill_matrix(struct matrix *m, int scales, uint64_t from, uint64_t bytes, uint8_t *to, struct k3_error *err)
{
    uint64_t width = scales ? m->scale_row : m->code_row, end = from + bytes;

    for (uint64_t n; from < end; from += n, to += n) {
        uint64_t row = from / width, at = from % width;
        n = width - at < end - from ? width - at : end - from;
        if (quantize(m, (int64_t)row) < 0) {
            errno = EDOM;
            return k3_errorf(err, "tensor %s: row %lld has a number that is not finite: pack it with --dense=bf16",
                             m->desc.name, (long long)m->part.row.begin + (long long)row);
        }
        memcpy(to, (scales ? m->scale : m->code) + at, n);
    }
    return 0;
}

static int is_matrix(const struct weights_place *place)
{
    return place->dtype == K3_FP8_E4M3 || place->dtype == K3_MXFP8;
}

static int fill_place(const struct pack *p, const struct checkpoint *cp, const struct weights_place *place,
                      uint64_t from, uint64_t bytes, uint8_t *to, struct k3_error *err)
{
    struct matrix m;

    if (!is_matrix(place)) {
        checkpoint_read(cp, &p->shard, &place->id, from, bytes, to);
        return 0;
    }
    matrix_open(&m, p, cp, place);
    int rc = fill_matrix(&m, place->scales, from, bytes, to, err);
    matrix_close(&m);
    return rc;
}

int pack_fill(const struct pack *p, const struct checkpoint *cp, uint64_t offset, size_t bytes, uint8_t *to,
              struct k3_error *err)
{
    const struct weights_map *m = p->map;
    uint64_t end = offset + bytes;

    memset(to, 0, bytes);
    for (size_t i = weights_map_find(m, offset); i < m->count && m->place[i].offset < end; i++) {
        const struct weights_place *at = &m->place[i];
        uint64_t begin = at->offset > offset ? at->offset : offset;
        uint64_t stop = at->offset + at->bytes < end ? at->offset + at->bytes : end;
        if (begin < stop && fill_place(p, cp, at, begin - at->offset, stop - begin, to + (begin - offset), err) < 0)
            return -1;
    }
    return 0;
}

void pack_measure(const struct pack *p, const struct checkpoint *cp, const struct weights_place *place,
                  struct quantize_error *e)
{
    struct matrix m;

    *e = (struct quantize_error){0};
    if (!is_matrix(place) || place->scales)
        return;
    matrix_open(&m, p, cp, place);
    for (int64_t row = 0; row < m.part.row.end - m.part.row.begin; row++)
        if (quantize(&m, row) == 0)
            quantize_compare(m.form, source_row(&m, row), m.part.col.begin, m.part.col.end, m.code, m.scale, e);
    matrix_close(&m);
}
