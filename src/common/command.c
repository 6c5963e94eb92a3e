#include "common/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/alloc.h"

struct command {
    struct loop *loop;
    pid_t pid;
    int pidfd, pipe; /* -1: closed */
    struct loop_source *ended, *printed;
    struct loop_timer *limit;
    command_done *done;
    void *arg;
    size_t len;
    char output[COMMAND_OUTPUT + 1];
};

bool command_exists(const char *program)
{
    const char *path = getenv("PATH");
    bool found = false;

    for (size_t len; path && *path && !found; path += len + (path[len] == ':')) {
        len = strcspn(path, ":");
        char *name = k3_asprintf("%.*s/%s", (int)len, path, program);
        found = access(name, X_OK) == 0;
        free(name);
    }
    return found;
}

static void release(void *arg)
{
    free(arg);
}

/* Everything but the memory, which a caller up the stack may hold for the rest of this turn. */
static void close_all(struct command *c)
{
    if (c->printed)
        loop_source_remove(c->printed);
    if (c->ended)
        loop_source_remove(c->ended);
    if (c->limit)
        loop_timer_remove(c->limit);
    if (c->pipe >= 0)
        close(c->pipe);
    if (c->pidfd >= 0)
        close(c->pidfd);
    loop_defer(c->loop, release, c);
}

/* A child that is killed is a moment from its end, so this does not wait to speak of. */
static int reap(struct command *c)
{
    int status = 0;

    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* False: there will be no more. */
static bool read_some(struct command *c)
{
    char rest[4096];
    bool room = c->len < COMMAND_OUTPUT;
    ssize_t n = room ? read(c->pipe, c->output + c->len, COMMAND_OUTPUT - c->len) : read(c->pipe, rest, sizeof rest);

    if (n > 0 && room)
        c->len += (size_t)n;
    return n > 0 || (n < 0 && errno == EINTR);
}

static void on_printed(void *arg, short ready)
{
    struct command *c = arg;

    (void)ready;
    if (read_some(c) || errno == EAGAIN)
        return;
    loop_source_remove(c->printed);
    c->printed = NULL;
}

static void finish(struct command *c)
{
    int status = reap(c);

    while (read_some(c)) /* what is still in the pipe; a grandchild that holds it open does not hold us up */
        ;
    c->output[c->len] = '\0';
    close_all(c);
    c->done(c->arg, status, c->output);
}

static void on_ended(void *arg, short ready)
{
    (void)ready;
    finish(arg);
}

static void on_limit(void *arg)
{
    struct command *c = arg;

    kill(c->pid, SIGKILL);
    finish(c);
}

static int spawn(struct command *c, char *const argv[], int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    extern char **environ;
    int rc;

    sigemptyset(&none); /* the loop blocks what it takes itself */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    rc = posix_spawnp(&c->pid, argv[0], &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return rc;
}

struct command *command_start(struct loop *loop, char *const argv[], double limit_sec, command_done *done, void *arg,
                              struct k3_error *err)
{
    struct command *c = k3_zalloc(sizeof *c);
    int ends[2] = {-1, -1};

    *c = (struct command){.loop = loop, .pidfd = -1, .pipe = -1, .done = done, .arg = arg};
    if (pipe2(ends, O_CLOEXEC) < 0) {
        k3_errorf(err, "%s: %s", argv[0], strerror(errno));
        close_all(c);
        return NULL;
    }
    c->pipe = ends[0];
    fcntl(c->pipe, F_SETFL, O_NONBLOCK);
    errno = spawn(c, argv, ends[1]);
    int cause = errno;
    close(ends[1]);
    if (cause == 0 && (c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0)) < 0) {
        cause = errno;
        kill(c->pid, SIGKILL);
        reap(c);
    }
    if (cause) {
        errno = cause;
        k3_errorf(err, "%s: %s", argv[0], strerror(cause));
        close_all(c);
        return NULL;
    }
    c->printed = loop_add_fd(loop, c->pipe, POLLIN, on_printed, c);
    c->ended = loop_add_fd(loop, c->pidfd, POLLIN, on_ended, c);
    c->limit = loop_add_timer(loop, on_limit, c);
    loop_timer_set(c->limit, limit_sec, 0);
    return c;
}

void command_stop(struct command *c)
{
    int saved = errno;

    if (!c)
        return;
    kill(c->pid, SIGKILL);
    reap(c);
    close_all(c);
    errno = saved;
}
