#include "engine/lost.h"

#include <stdlib.h>

#include <zmq.h>

#include "engine/job.h"
#include "wire/auth.h"
#include "wire/frame.h"

static int await_answer(void *socket, const char *endpoint, struct k3_error *err)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};
    struct frame f;
    struct message m;
    int code = EXIT_CODE_FAILED;

    if (zmq_poll(&item, 1, LOST_WAIT_MS) <= 0) {
        k3_errorf(err, "%s: no answer within %d s", endpoint, LOST_WAIT_MS / 1000);
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
            k3_errorf(err, "%s: answers with %s", endpoint, message_type_name(m.head.type));
        message_clear(&m);
    }
    frame_clear(&f);
    return code;
}

int lost_report(const struct settings *s, const char *reason, struct k3_error *err)
{
    struct message m = message_of(WIRE_ENGINE_LOST, NULL);
    struct auth *auth = NULL;
    void *zmq = zmq_ctx_new(), *socket = NULL;
    int code = EXIT_CODE_UNREACHABLE;

    m.engine_lost.job = job_id();
    m.engine_lost.msg = (char *)reason;
    if ((auth = auth_create(s->common.munge_socket, err)) && (socket = frame_socket(zmq, ZMQ_DEALER, 0, err)) &&
        frame_connect(socket, s->common.socket, err) == 0 && frame_send(socket, NULL, &m, auth, err) == 0)
        code = await_answer(socket, s->common.socket, err);
    if (socket)
        zmq_close(socket);
    zmq_ctx_term(zmq);
    auth_destroy(auth);
    return code;
}
