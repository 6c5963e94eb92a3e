/* median.h - of measured numbers */
#ifndef K3_COMMON_MEDIAN_H
#define K3_COMMON_MEDIAN_H

/* Ascending. */
void median_sort(double *x, int n);
/* Of n >= 1 numbers, which it leaves sorted. */
double median(double *x, int n);

#endif
