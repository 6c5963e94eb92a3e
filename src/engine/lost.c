#include "engine/lost.h"

#include <stdlib.h>

#include <zmq.h>

#include "engine/job.h"
#include "wire/auth.h"
#include "wire/frame.h"
#include "wire/route.h"

static int await_answer(void *socket, const struct route *route, struct k3_error *err)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    struct frame f;
    struct message m;
    int code = EXIT_CODE_FAILED;

    if (zmq_poll(&item, 1, LOST_WAIT_MS) <= 0) {
        route_silent(route, LOST_WAIT_MS / 1e3, err);
        return EXIT_CODE_UNREACHABLE;
    }
    if (frame_recv(socket, &f, err) <= 0)
        return EXIT_CODE_FAILED;
    if (frame_decode(&f, &m, err) == 0) {
        if (m.head.type == WIRE_OK)
            code = EXIT_CODE_OK;
        else if (m.head.type == WIRE_REFUSED) {
            k3_errorf(err, "%s", m.refused.msg);
            code = (int)m.refused.code;
        } else
            k3_errorf(err, "%s: answers with %s", route_endpoint(route), message_type_name(m.head.type));
        message_clear(&m);
    }
    frame_clear(&f);
    return code;
}

int lost_report(const struct settings *s, const char *reason, struct k3_error *err)
{
    struct message m = message_of(WIRE_ENGINE_LOST, NULL);
    struct auth *auth = NULL;
    struct route *route = NULL;
    void *zmq = zmq_ctx_new(), *socket = NULL;
    int code = EXIT_CODE_UNREACHABLE;

    m.head.version = WIRE_VERSION_OLDEST; /* nothing new in it, and any daemon understands */
    m.engine_lost.job = job_id();
    m.engine_lost.msg = (char *)reason;
    if ((auth = auth_create(s->common.munge_socket, err)) && (route = route_find(s, err)) &&
        (socket = route_connect(route, zmq, 0, err)) && frame_send(socket, NULL, &m, auth, err) == 0)
        code = await_answer(socket, route, err);
    if (socket)
        zmq_close(socket);
    zmq_ctx_term(zmq);
    route_destroy(route);
    auth_destroy(auth);
    return code;
}
