/* mkmanual - while k3 is built: what the tree has from the table of settings
 *
 *     mkmanual page < k3.conf.5.in       the manual page, with the settings in place of the line @SETTINGS@
 *     mkmanual example                   k3.conf.example */
#include <stdio.h>
#include <string.h>

#include "common/manual.h"
#include "common/settings.h"

static void make_page(void)
{
    char line[1000];

    while (fgets(line, sizeof line, stdin))
        if (strcmp(line, "@SETTINGS@\n") == 0)
            manual_page(settings_table(), stdout);
        else
            fputs(line, stdout);
}

static void make_example(void)
{
    fputs(
        "# k3.conf: every setting with its default.\n"
        "#\n"
        "# Copy it to k3.conf beside it and keep what differs.  Every program reads the whole file and refuses a wrong "
        "key.\n"
        "# See k3.conf(5).\n\n",
        stdout);
    manual_example(settings_table(), stdout);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "page") == 0) {
        make_page();
    } else if (argc == 2 && strcmp(argv[1], "example") == 0) {
        make_example();
    } else {
        fprintf(stderr, "Usage: mkmanual page|example\n");
        return 2;
    }
    return fflush(stdout) || ferror(stdin) ? 1 : 0;
}
