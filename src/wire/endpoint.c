#include "wire/endpoint.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"

struct place {
    char host[256]; /* an IPv6 address without its brackets */
    bool ipv6;
    unsigned int port;
};

static int parse_port(struct place *p, const char *text)
{
    char *end;
    unsigned long port;

    if (!*text) {
        p->port = ENDPOINT_PORT;
        return 0;
    }
    if (*text != ':' || !isdigit((unsigned char)text[1]))
        return -1;
    port = strtoul(text + 1, &end, 10);
    if (*end || port == 0 || port > 65535)
        return -1;
    p->port = (unsigned int)port;
    return 0;
}

/* What ZeroMQ would take for more than a name or an address is not let through. */
static int parse(struct place *p, const char *text)
{
    static const char name[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_*";
    static const char address[] = "0123456789abcdefABCDEF:.";
    size_t len;

    if (strncmp(text, "tcp://", 6) != 0)
        return -1;
    text += 6;
    p->ipv6 = *text == '[';
    text += p->ipv6;
    len = strspn(text, p->ipv6 ? address : name);
    if (len == 0 || len >= sizeof p->host)
        return -1;
    memcpy(p->host, text, len);
    p->host[len] = '\0';
    text += len;
    if (p->ipv6 && *text++ != ']')
        return -1;
    return parse_port(p, text);
}

static char *format(const struct place *p, const char *host)
{
    return k3_asprintf(p->ipv6 ? "tcp://[%s]:%u" : "tcp://%s:%u", host, p->port);
}

/* In whatever way the address is written: 0.0.0.0, 0, ::, 0::0 ... */
static bool is_everywhere(const struct place *p)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found;
    bool any = false;

    if (strchr(p->host, '*'))
        return true;
    if (getaddrinfo(p->host, NULL, &hints, &found) != 0)
        return false;
    if (found->ai_family == AF_INET) {
        any = ((const struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr == htonl(INADDR_ANY);
    } else if (found->ai_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)found->ai_addr)->sin6_addr;
        any = IN6_IS_ADDR_UNSPECIFIED(a) || (IN6_IS_ADDR_V4MAPPED(a) && memcmp(a->s6_addr + 12, "\0\0\0", 4) == 0);
    }
    freeaddrinfo(found);
    return any;
}

char *endpoint_server(const char *setting, const char *text, struct k3_error *err)
{
    struct place p;

    if (parse(&p, text) == 0 && !is_everywhere(&p))
        return format(&p, p.host);
    errno = EINVAL;
    k3_errorf(err, "%s = \"%s\": not a host as in tcp://login1:%d", setting, text, ENDPOINT_PORT);
    return NULL;
}

char *endpoint_listen(const char *setting, const char *text, struct k3_error *err)
{
    struct place p;

    if (parse(&p, text) < 0)
        k3_errorf(err, "%s = \"%s\": not an interface or address as in tcp://eth0:%d", setting, text, ENDPOINT_PORT);
    else if (is_everywhere(&p))
        k3_errorf(err, "%s = \"%s\": these are all interfaces; name one, or write tcp://all-interfaces:%u", setting,
                  text, p.port);
    else
        return format(&p, strcmp(p.host, "all-interfaces") == 0 ? "*" : p.host);
    errno = EINVAL;
    return NULL;
}
