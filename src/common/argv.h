/* argv.h - a command line that nobody else can read
 *
 * What a process was called with is shown to every user of the machine, by ps(1) and /proc. */
#ifndef K3_COMMON_ARGV_H
#define K3_COMMON_ARGV_H

/* A copy of argv, one block to be freed; of the original only the program's name is left. */
char **argv_hide(int argc, char **argv);

#endif
