/* plan_json.c - plans as JSON: bytes, milliseconds, tokens a second */
#include <jansson.h>

#include "tools/plan.h"

static void dump(json_t *value, FILE *out)
{
    json_dumpf(value, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(value);
}

static json_t *basis_json(const struct device *d)
{
    struct device_row row[DEVICE_ROWS];
    json_t *values = json_object();

    device_rows(d, row);
    for (int i = 0; i < DEVICE_ROWS; i++)
        json_object_set_new(values, row[i].name,
                            json_pack("{s:f, s:s, s:s, s:s}", "value", row[i].value->value, "unit", row[i].unit,
                                      "basis", row[i].value->basis, "source", row[i].value->source));
    return json_pack("{s:s, s:o}", "name", d->name, "values", values);
}

static json_t *memory_json(const struct plan *p, const struct layout *l, enum k3_dtype dense)
{
    json_t *list = json_array();

    for (int rank = 0, last; rank < layout_ranks(l); rank = last + 1) {
        struct plan_memory m;
        json_t *parts = json_object();
        last = plan_same_memory(p, l, dense, rank, &m);
        for (int i = 0; i < PLAN_PARTS; i++)
            json_object_set_new(parts, plan_part_name(i), json_integer((json_int_t)m.part[i]));
        json_array_append_new(list, json_pack("{s:[i,i], s:o, s:I, s:b}", "ranks", rank, last, "parts", parts, "total",
                                              (json_int_t)m.total, "fits", m.fits));
    }
    return list;
}

static json_t *step_json(const struct predict_step *s, const struct prediction *t)
{
    json_t *bytes = json_object(), *operations = json_object();

    for (int g = 0; g < COST_GROUPS; g++) {
        json_object_set_new(bytes, cost_group_name(g), json_real(t->work.bytes[g]));
        json_object_set_new(operations, cost_group_name(g), json_real(t->work.flops[g]));
    }
    return json_pack("{s:i, s:i, s:I, s:f, s:o, s:o, s:f, s:f, s:f, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "batch",
                     s->seqs, "prefill", s->prefill, "context", (json_int_t)s->context, "bytes", t->bytes,
                     "bytes_by_group", bytes, "operations_by_group", operations, "memory_ms", t->memory_ms,
                     "compute_ms", t->compute_ms, "layers_ms", t->layers_ms, "exchanges", t->exchanges, "phases",
                     t->phases, "latency_ms", t->latency_ms, "wire_ms", t->wire_ms, "wait_ms", t->wait_ms, "step_ms",
                     t->step_ms, "tokens_per_second", t->tokens_per_second);
}

static json_t *layout_json(const struct plan *p, const struct layout *l, enum k3_dtype dense)
{
    struct predict_options o = p->options;
    json_t *steps = json_array();

    o.cost.dense = dense;
    for (int i = 0; i < p->steps; i++) {
        struct prediction t;
        predict(&p->config, l, &p->device, &o, &p->step[i], &t);
        json_array_append_new(steps, step_json(&p->step[i], &t));
    }
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:o, s:o}", "tp", l->tp, "pp", l->pp, "ep", l->ep, "ranks",
                     layout_ranks(l), "dense", inventory_dense_name(dense), "memory", memory_json(p, l, dense), "steps",
                     steps);
}

void plan_print_json(const struct plan *p, FILE *out)
{
    json_t *layouts = json_array();

    for (int i = 0; i < p->layouts; i++)
        for (int k = 0; k < p->denses; k++)
            json_array_append_new(layouts, layout_json(p, &p->layout[i], p->dense[k]));
    dump(json_pack("{s:s, s:i, s:o, s:o}", "config", p->model, "nodes", p->nodes, "device", basis_json(&p->device),
                   "layouts", layouts),
         out);
}

void plan_check_json(const struct plan *p, const struct measured *m, int files, FILE *out)
{
    json_t *runs = json_array();

    for (int i = 0; i < files; i++)
        for (int k = 0; k < m[i].runs; k++) {
            const struct measured_run *r = &m[i].run[k];
            struct prediction t;
            measured_predict(r, &p->config, &p->device, &p->options, &t);
            json_array_append_new(
                runs, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:i}", "file", m[i].file,
                                "dense", inventory_dense_name(r->dense), "tp", r->tp, "rank", r->rank, "batch",
                                r->batch, "prefill", r->prefill, "context", (json_int_t)r->context, "exchange_us",
                                r->exchange_us, "measured_ms", r->ms_per_step, "predicted_ms", t.step_ms, "error",
                                t.step_ms / r->ms_per_step - 1, "bytes", t.bytes, "exchanges", t.exchanges));
        }
    dump(json_pack("{s:s, s:o, s:o}", "config", p->model, "device", basis_json(&p->device), "runs", runs), out);
}
