/* when.h - a point in time as people write it for sbatch
 *
 *     now[+COUNT[seconds|minutes|hours|days|weeks]]
 *     HH:MM[:SS][AM|PM]               today, or tomorrow when that has passed
 *     midnight noon teatime           the same; teatime is 16:00
 *     today tomorrow                  at this time of day
 *     YYYY-MM-DD[THH:MM[:SS]]
 *     MMDD[YY] MM/DD[/YY] MM.DD[.YY]  with [-HH:MM[:SS]] behind it; this year, or next year when that has passed
 *
 * (Slurm, sbatch(1), --begin and --deadline.)  Local time; a day without a time of day begins at midnight. */
#ifndef K3_CLIENT_WHEN_H
#define K3_CLIENT_WHEN_H

#include "common/error.h"

/* Seconds since 1970 of text, said at `now`.  -1 names what is wrong. */
int when_parse(const char *text, double now, double *at, struct k3_error *err);

#endif
