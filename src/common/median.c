#include "common/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void median_sort(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
}

double median(double *x, int n)
{
    median_sort(x, n);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}
