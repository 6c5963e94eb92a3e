/* compare.c - hold what k3run wrote against recorded tensors
 *
 *     compare ids FILE NAME                              print an I32 tensor with commas
 *     compare relative MOST FILE NAME FILE NAME          |got - wanted| / |wanted|, Euclidean
 *     compare rows MOST FILE NAME FILE NAME POSITIONS    the same for the rows that an I32 tensor of the second file
 * names compare argmax FILE NAME FILE NAME                 each row's largest against I32: how many differ compare
 * logsumexp MOST FILE NAME FILE NAME         each row's against F32: largest relative difference
 *
 * Prints the number and exits 0 when it is at most MOST. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors.h"

static void stop(const char *why) __attribute__((noreturn));

static void stop(const char *why)
{
    fprintf(stderr, "compare: %s\n", why);
    exit(2);
}

static const struct safetensors_tensor *find(const char *file, const char *name, const char *dtype)
{
    static struct safetensors *files[3]; /* open until the program ends */
    static int n;
    struct k3_error err;
    struct safetensors *st = files[n++] = safetensors_open(file, &err);
    if (!st)
        stop(err.text);

    const struct safetensors_tensor *t = safetensors_find(st, name);
    if (!t || strcmp(t->dtype, dtype) != 0)
        stop(name);
    return t;
}

static int64_t rows_of(const struct safetensors_tensor *t)
{
    return t->dims > 0 ? t->shape[0] : 1;
}

static int64_t cols_of(const struct safetensors_tensor *t)
{
    return t->dims > 1 ? t->shape[1] : 1;
}

/* Element i; tensors need not be aligned in their file. */
static float f32(const struct safetensors_tensor *t, int64_t i)
{
    float x;
    memcpy(&x, (const char *)t->data + i * 4, sizeof x);
    return x;
}

static int32_t i32(const struct safetensors_tensor *t, int64_t i)
{
    int32_t x;
    memcpy(&x, (const char *)t->data + i * 4, sizeof x);
    return x;
}

static int print_ids(const struct safetensors_tensor *t)
{
    for (int64_t i = 0; i < rows_of(t); i++)
        printf("%s%d", i > 0 ? "," : "", i32(t, i));
    putchar('\n');
    return 0;
}

/* NaN is never small enough. */
static int verdict(double number, double most)
{
    printf("%.3g\n", number);
    return number <= most ? 0 : 1;
}

static int relative(const struct safetensors_tensor *got, const struct safetensors_tensor *want,
                    const struct safetensors_tensor *position, double most)
{
    int64_t rows = rows_of(want), cols = cols_of(want);
    double difference = 0, norm = 0;

    if (cols_of(got) != cols || (position ? rows_of(position) : rows_of(got)) != rows)
        stop("shapes differ");
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = position ? i32(position, r) : r;
        if (at < 0 || at >= rows_of(got))
            stop("no such row");
        for (int64_t c = 0; c < cols; c++) {
            double w = f32(want, r * cols + c), d = f32(got, at * cols + c) - w;
            difference += d * d;
            norm += w * w;
        }
    }
    return verdict(sqrt(difference / norm), most);
}

static int argmax(const struct safetensors_tensor *got, const struct safetensors_tensor *want)
{
    int wrong = 0;

    if (rows_of(got) != rows_of(want))
        stop("shapes differ");
    for (int64_t r = 0; r < rows_of(got); r++) {
        int64_t best = 0;
        for (int64_t c = 1; c < cols_of(got); c++)
            if (f32(got, r * cols_of(got) + c) > f32(got, r * cols_of(got) + best))
                best = c;
        wrong += best != i32(want, r);
    }
    return verdict(wrong, 0);
}

static int logsumexp(const struct safetensors_tensor *got, const struct safetensors_tensor *want, double most)
{
    double worst = 0;

    if (rows_of(got) != rows_of(want))
        stop("shapes differ");
    for (int64_t r = 0; r < rows_of(got); r++) {
        double sum = 0; /* a test model's logits are small: no shift is needed */
        for (int64_t c = 0; c < cols_of(got); c++)
            sum += exp(f32(got, r * cols_of(got) + c));
        double d = fabs(log(sum) / f32(want, r) - 1);
        worst = d <= worst ? worst : d;
    }
    return verdict(worst, most);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "ids") == 0 && argc == 4)
        return print_ids(find(argv[2], argv[3], "I32"));
    if (strcmp(what, "relative") == 0 && argc == 7)
        return relative(find(argv[3], argv[4], "F32"), find(argv[5], argv[6], "F32"), NULL, atof(argv[2]));
    if (strcmp(what, "rows") == 0 && argc == 8)
        return relative(find(argv[3], argv[4], "F32"), find(argv[5], argv[6], "F32"), find(argv[5], argv[7], "I32"),
                        atof(argv[2]));
    if (strcmp(what, "argmax") == 0 && argc == 6)
        return argmax(find(argv[2], argv[3], "F32"), find(argv[4], argv[5], "I32"));
    if (strcmp(what, "logsumexp") == 0 && argc == 7)
        return logsumexp(find(argv[3], argv[4], "F32"), find(argv[5], argv[6], "F32"), atof(argv[2]));
    stop("what to compare? See the head of compare.c");
}
