#include "wire/auth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <munge.h>
#include <sodium.h>

#include "common/alloc.h"

struct auth {
    munge_ctx_t munge;
};

struct auth *auth_create(const char *socket, struct k3_error *err)
{
    struct auth *a = k3_zalloc(sizeof *a);

    if (!(a->munge = munge_ctx_create())) {
        k3_errorf(err, "munge: no memory for a context");
        goto fail;
    }
    if (socket && *socket && munge_ctx_set(a->munge, MUNGE_OPT_SOCKET, socket) != EMUNGE_SUCCESS) {
        k3_errorf(err, "munge socket %s: %s", socket, munge_ctx_strerror(a->munge));
        goto fail;
    }
    return a;
fail:
    auth_destroy(a);
    return NULL;
}

void auth_destroy(struct auth *a)
{
    int saved = errno;

    if (a) {
        munge_ctx_destroy(a->munge);
        free(a);
    }
    errno = saved;
}

static void digest(uint8_t hash[crypto_hash_sha256_BYTES], const void *header, size_t header_len, const void *body,
                   size_t body_len)
{
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, header, header_len);
    crypto_hash_sha256_update(&state, body, body_len);
    crypto_hash_sha256_final(&state, hash);
}

char *auth_sign(struct auth *a, const void *header, size_t header_len, const void *body, size_t body_len,
                struct k3_error *err)
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    char *credential = NULL;

    digest(hash, header, header_len, body, body_len);
    munge_err_t rc = munge_encode(&credential, a->munge, hash, sizeof hash);
    if (rc != EMUNGE_SUCCESS) {
        const char *text = munge_ctx_strerror(a->munge);
        k3_errorf(err, "cannot prove who you are: munge: %s", text ? text : munge_strerror(rc));
        free(credential);
        errno = EAGAIN;
        return NULL;
    }
    return credential;
}

/* Sentence and errno for what munge says of a credential. */
static int refuse(struct auth *a, munge_err_t rc, struct k3_error *err)
{
    const char *text = munge_ctx_strerror(a->munge);

    errno = EACCES;
    switch (rc) {
    case EMUNGE_CRED_EXPIRED:
        return k3_errorf(err, "the MUNGE credential has expired: send again, and compare the two hosts' clocks");
    case EMUNGE_CRED_REWOUND:
        return k3_errorf(err, "the MUNGE credential is from the future: compare the two hosts' clocks");
    case EMUNGE_CRED_REPLAYED:
        return k3_errorf(err, "the MUNGE credential was used before");
    case EMUNGE_CRED_UNAUTHORIZED:
        return k3_errorf(err, "the MUNGE credential is not for this user to decode");
    case EMUNGE_SNAFU:
    case EMUNGE_NO_MEMORY:
    case EMUNGE_SOCKET:
    case EMUNGE_TIMEOUT:
        errno = EAGAIN;
        return k3_errorf(err, "munge: %s", text ? text : munge_strerror(rc));
    default:
        return k3_errorf(err, "the MUNGE credential is not genuine: %s", munge_strerror(rc));
    }
}

int auth_verify(struct auth *a, const void *credential, size_t credential_len, const void *header, size_t header_len,
                const void *body, size_t body_len, uid_t *uid, gid_t *gid, struct k3_error *err)
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    char text[AUTH_CREDENTIAL + 1];
    void *payload = NULL;
    int payload_len = 0, rc = -1;
    uid_t who;
    gid_t group;

    if (credential_len == 0 || credential_len > AUTH_CREDENTIAL) {
        errno = EACCES;
        return k3_errorf(err, credential_len ? "the MUNGE credential is too long" : "no MUNGE credential");
    }
    memcpy(text, credential, credential_len);
    text[credential_len] = '\0';

    /* munge fills payload, uid and gid in even for a replayed or expired credential: only the code counts. */
    munge_err_t said = munge_decode(text, a->munge, &payload, &payload_len, &who, &group);
    if (said != EMUNGE_SUCCESS) {
        refuse(a, said, err);
        goto out;
    }
    digest(hash, header, header_len, body, body_len);
    if (payload_len != sizeof hash || sodium_memcmp(payload, hash, sizeof hash) != 0) {
        errno = EACCES;
        k3_errorf(err, "the MUNGE credential belongs to another message");
        goto out;
    }
    *uid = who;
    *gid = group;
    rc = 0;
out:
    free(payload);
    return rc;
}
