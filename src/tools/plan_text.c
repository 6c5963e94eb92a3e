/* plan_text.c - plans as tables for people */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/plan.h"

enum { COLUMNS = 6 }; /* of ranks beside each other */

/* --- memory ---------------------------------------------------------------------------------------------------------
 */

struct column {
    int first, last; /* ranks */
    struct plan_memory memory;
};

static void print_part(const struct column *column, int columns, int part, FILE *out)
{
    double most = 0;

    for (int i = 0; i < columns; i++)
        most = fmax(most, column[i].memory.part[part]);
    if (most == 0)
        return;
    fprintf(out, "%-14s", plan_part_name(part));
    for (int i = 0; i < columns; i++)
        fprintf(out, " %11.3f", column[i].memory.part[part] / 1e9);
    fputc('\n', out);
}

static void print_columns(const struct plan *p, const struct column *column, int columns, FILE *out)
{
    fprintf(out, "%-14s", "memory, GB");
    for (int i = 0; i < columns; i++) {
        char ranks[32];
        snprintf(ranks, sizeof ranks, column[i].last > column[i].first ? "rank %d-%d" : "rank %d", column[i].first,
                 column[i].last);
        fprintf(out, " %11s", ranks);
    }
    fputc('\n', out);
    for (int part = 0; part < PLAN_PARTS; part++)
        print_part(column, columns, part, out);
    fprintf(out, "%-14s", "total");
    for (int i = 0; i < columns; i++)
        fprintf(out, " %11.3f", column[i].memory.total / 1e9);
    fprintf(out, "\n%-14s", "");
    for (int i = 0; i < columns; i++)
        fprintf(out, " %11s", column[i].memory.fits ? "fits" : "too much");
    fprintf(out, " in %.3f\n\n", p->device.memory_gb.value);
}

/* Ranks that hold the same share a column. */
static void print_memory(const struct plan *p, const struct layout *l, enum k3_dtype dense, FILE *out)
{
    struct column column[COLUMNS];
    int n = 0;

    for (int rank = 0; rank < layout_ranks(l); rank = column[n - 1].last + 1) {
        if (n == COLUMNS) {
            print_columns(p, column, n, out);
            n = 0;
        }
        column[n].first = rank;
        column[n].last = plan_same_memory(p, l, dense, rank, &column[n].memory);
        n++;
    }
    print_columns(p, column, n, out);
}

/* --- steps ----------------------------------------------------------------------------------------------------------
 */

static void predict_with(const struct plan *p, const struct layout *l, enum k3_dtype dense, int step,
                         struct prediction *got)
{
    struct predict_options o = p->options;

    o.cost.dense = dense;
    predict(&p->config, l, &p->device, &o, &p->step[step], got);
}

static const char *step_name(const struct predict_step *s, char text[32])
{
    if (s->prefill)
        snprintf(text, 32, "chunk %d", s->prefill);
    else
        snprintf(text, 32, "batch %d", s->seqs);
    return text;
}

static void print_steps(const struct plan *p, const struct layout *l, enum k3_dtype dense, FILE *out)
{
    fprintf(out, "%-11s %8s %8s %8s %8s %8s %9s %8s %8s %8s %9s %8s %9s\n", "step", "context", "read GB", "read ms",
            "comp ms", "layer ms", "exchanges", "phases", "late ms", "wire ms", "wait ms", "step ms", "tokens/s");
    for (int i = 0; i < p->steps; i++) {
        struct prediction t;
        char name[LAYOUT_NAME];
        predict_with(p, l, dense, i, &t);
        fprintf(out, "%-11s %8lld %8.3f %8.2f %8.2f %8.2f %9d %8d %8.2f %8.2f %9.2f %8.2f %9.2f\n",
                step_name(&p->step[i], name), (long long)p->step[i].context, t.bytes / 1e9, t.memory_ms, t.compute_ms,
                t.layers_ms, t.exchanges, t.phases, t.latency_ms, t.wire_ms, t.wait_ms, t.step_ms, t.tokens_per_second);
    }
    fputc('\n', out);
}

/* Where the bytes of the fullest step's busiest rank are, a column a step. */
static void print_groups(const struct plan *p, const struct layout *l, enum k3_dtype dense, FILE *out)
{
    struct prediction t[COLUMNS];
    int n = p->steps < COLUMNS ? p->steps : COLUMNS;
    char name[LAYOUT_NAME];

    fprintf(out, "%-14s", "bytes, GB");
    for (int i = 0; i < n; i++) {
        predict_with(p, l, dense, i, &t[i]);
        fprintf(out, " %11s", step_name(&p->step[i], name));
    }
    fputc('\n', out);
    for (int g = 0; g < COST_GROUPS; g++) {
        fprintf(out, "%-14s", cost_group_name(g));
        for (int i = 0; i < n; i++)
            fprintf(out, " %11.4f", t[i].work.bytes[g] / 1e9);
        fputc('\n', out);
    }
    fputc('\n', out);
}

static void print_basis(const struct plan *p, FILE *out)
{
    struct device_row row[DEVICE_ROWS];

    device_rows(&p->device, row);
    fprintf(out, "%s:\n", p->device.name);
    for (int i = 0; i < DEVICE_ROWS; i++)
        fprintf(out, "%-14s %9.6g %-8s %-9s %s\n", row[i].name, row[i].value->value, row[i].unit, row[i].value->basis,
                row[i].value->source);
}

void plan_print(const struct plan *p, FILE *out)
{
    char name[LAYOUT_NAME];

    for (int i = 0; i < p->layouts; i++)
        for (int k = 0; k < p->denses; k++) {
            const struct layout *l = &p->layout[i];
            fprintf(out, "%s, %d of %d ranks, dense part %s\n\n", layout_name(l, name), layout_ranks(l), p->nodes,
                    inventory_dense_name(p->dense[k]));
            print_memory(p, l, p->dense[k], out);
            print_steps(p, l, p->dense[k], out);
            print_groups(p, l, p->dense[k], out);
        }
    print_basis(p, out);
}

void plan_compare(const struct plan *p, FILE *out)
{
    char name[LAYOUT_NAME];

    fprintf(out, "%-20s %-6s %9s %-8s", "tokens/s", "dense", "GB a rank", "");
    for (int i = 0; i < p->steps; i++)
        fprintf(out, " %11s", step_name(&p->step[i], name));
    fprintf(out, "\n%-20s %-6s %9s %-8s", "", "", "", "context");
    for (int i = 0; i < p->steps; i++)
        fprintf(out, " %11lld", (long long)p->step[i].context);
    fputc('\n', out);
    for (int i = 0; i < p->layouts; i++)
        for (int k = 0; k < p->denses; k++) {
            struct plan_memory m;
            plan_fullest(p, &p->layout[i], p->dense[k], &m);
            fprintf(out, "%-20s %-6s %9.3f %-8s", layout_name(&p->layout[i], name), inventory_dense_name(p->dense[k]),
                    m.total / 1e9, m.fits ? "fits" : "too much");
            for (int s = 0; s < p->steps; s++) {
                struct prediction t;
                predict_with(p, &p->layout[i], p->dense[k], s, &t);
                fprintf(out, " %11.2f", t.tokens_per_second);
            }
            fputc('\n', out);
        }
    fputc('\n', out);
    print_basis(p, out);
}

/* --- runs -----------------------------------------------------------------------------------------------------------
 */

/* Beside the times, what the run says that it read and exchanged. */
static void print_run(const struct measured_run *r, const struct prediction *t, const char *file, FILE *out)
{
    struct predict_step step = {.seqs = r->batch, .prefill = r->prefill};
    char name[LAYOUT_NAME], bytes[32] = "", exchanges[32];

    if (r->bytes_ideal > 0)
        snprintf(bytes, sizeof bytes, "%.3f", r->bytes_ideal / 1e9);
    snprintf(exchanges, sizeof exchanges, r->exchanges ? "%d/%d" : "%d", t->exchanges, r->exchanges);
    fprintf(out, "%-6s %4d %4d %-11s %8lld %8.1f %9.3f %9.3f %+6.1f%% %8.3f %8s %9s  %s\n",
            inventory_dense_name(r->dense), r->tp, r->rank, step_name(&step, name), (long long)r->context,
            r->exchange_us, r->ms_per_step, t->step_ms, 100 * (t->step_ms / r->ms_per_step - 1), t->bytes / 1e9, bytes,
            exchanges, file);
}

void plan_check(const struct plan *p, const struct measured *m, int files, FILE *out)
{
    double worst = 0;

    fprintf(out, "%-6s %4s %4s %-11s %8s %8s %9s %9s %7s %8s %8s %9s  %s\n", "dense", "tp", "rank", "step", "context",
            "delay us", "measured", "predicted", "error", "GB", "its GB", "exchanges", "file");
    for (int i = 0; i < files; i++)
        for (int k = 0; k < m[i].runs; k++) {
            const struct measured_run *r = &m[i].run[k];
            struct prediction t;
            measured_predict(r, &p->config, &p->device, &p->options, &t);
            worst = fmax(worst, fabs(t.step_ms / r->ms_per_step - 1));
            print_run(r, &t, m[i].file, out);
        }

    fprintf(out, "\nms a step; the largest error is %.1f%%\n\n", 100 * worst);
    print_basis(p, out);
}
