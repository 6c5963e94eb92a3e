/* auth_test.c - credentials against a private munged: genuine, replayed, expired, forged, for other bytes */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <munge.h>
#include <sodium.h>

#include "common/alloc.h"
#include "wire/auth.h"

static char dir[] = "/tmp/k3-auth-XXXXXX";
static char *munge_socket;
static struct auth *auth;
static const char header[] = "header", body[] = "body";

/* munged and mungekey live in sbin, which a user's PATH may lack. */
static int shell(const char *command)
{
    char *line = k3_asprintf("cd %s && PATH=$PATH:/usr/sbin:/sbin && %s", dir, command);
    int rc = system(line);
    free(line);
    return rc;
}

static int start_munged(void **state)
{
    struct k3_error err;
    (void)state;
    if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
        return -1;
    munge_socket = k3_asprintf("%s/sock", dir);
    auth = auth_create(munge_socket, &err);
    /* Without munged the tests below skip. */
    shell("mungekey -c -k key && munged --key-file=$PWD/key --socket=$PWD/sock --pid-file=$PWD/pid --log-file=$PWD/log "
          "--seed-file=$PWD/seed --num-threads=1 2>err");
    return auth ? 0 : -1;
}

static int stop_munged(void **state)
{
    (void)state;
    auth_destroy(auth);
    auth_destroy(NULL);
    free(munge_socket);
    shell("if test -s pid; then kill $(cat pid); fi; rm -rf $PWD");
    return 0;
}

static void need_munged(void)
{
    if (access(munge_socket, F_OK) < 0)
        skip();
}

static char *sign(void)
{
    struct k3_error err;
    char *c = auth_sign(auth, header, sizeof header, body, sizeof body, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

static int verify(const char *credential, size_t len, const char *for_body, struct k3_error *err)
{
    uid_t uid = 12345;
    gid_t gid = 12345;
    int rc = auth_verify(auth, credential, len, header, sizeof header, for_body, strlen(for_body) + 1, &uid, &gid, err);
    assert_int_equal(uid, rc == 0 ? geteuid() : 12345);
    assert_int_equal(gid, rc == 0 ? getegid() : 12345);
    return rc;
}

static void a_credential_is_good_once_for_its_message(void **state)
{
    struct k3_error err;
    (void)state;
    need_munged();
    char *c = sign();
    assert_int_equal(verify(c, strlen(c), body, &err), 0);
    assert_int_equal(verify(c, strlen(c), body, &err), -1);
    assert_int_equal(errno, EACCES);
    assert_string_equal(err.text, "the MUNGE credential was used before");
    free(c);
}

static void other_bytes_are_refused(void **state)
{
    struct k3_error err;
    (void)state;
    need_munged();
    char *c = sign();
    assert_int_equal(verify(c, strlen(c), "bodY", &err), -1);
    assert_int_equal(errno, EACCES);
    assert_string_equal(err.text, "the MUNGE credential belongs to another message");
    free(c);
}

static void a_payload_of_another_kind_is_refused(void **state)
{
    struct k3_error err;
    char *c = NULL;
    (void)state;
    need_munged();
    munge_ctx_t munge = munge_ctx_create();
    assert_int_equal(munge_ctx_set(munge, MUNGE_OPT_SOCKET, munge_socket), EMUNGE_SUCCESS);
    assert_int_equal(munge_encode(&c, munge, NULL, 0), EMUNGE_SUCCESS);
    assert_int_equal(verify(c, strlen(c), body, &err), -1);
    free(c);
    assert_int_equal(munge_encode(&c, munge, body, sizeof body), EMUNGE_SUCCESS);
    assert_int_equal(verify(c, strlen(c), body, &err), -1);
    assert_string_equal(err.text, "the MUNGE credential belongs to another message");
    free(c);
    munge_ctx_destroy(munge);
}

static void an_expired_credential_is_refused(void **state)
{
    struct k3_error err;
    char *c = NULL;
    uint8_t hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state sha;
    (void)state;
    need_munged();
    crypto_hash_sha256_init(&sha);
    crypto_hash_sha256_update(&sha, (const uint8_t *)header, sizeof header);
    crypto_hash_sha256_update(&sha, (const uint8_t *)body, sizeof body);
    crypto_hash_sha256_final(&sha, hash);
    munge_ctx_t munge = munge_ctx_create();
    assert_int_equal(munge_ctx_set(munge, MUNGE_OPT_SOCKET, munge_socket), EMUNGE_SUCCESS);
    assert_int_equal(munge_ctx_set(munge, MUNGE_OPT_TTL, 1), EMUNGE_SUCCESS);
    assert_int_equal(munge_encode(&c, munge, hash, sizeof hash), EMUNGE_SUCCESS);
    sleep(3);
    assert_int_equal(verify(c, strlen(c), body, &err), -1);
    assert_int_equal(errno, EACCES);
    assert_non_null(strstr(err.text, "has expired"));
    free(c);
    munge_ctx_destroy(munge);
}

static void forged_credentials_are_refused(void **state)
{
    struct k3_error err;
    char big[AUTH_CREDENTIAL + 2];
    (void)state;
    need_munged();
    char *c = sign();
    for (size_t i = 0; i < strlen(c); i += 7) {
        char kept = c[i];
        c[i] = kept == 'A' ? 'B' : 'A';
        if (verify(c, strlen(c), body, &err) == 0)
            fail_msg("accepted with character %zu changed", i);
        assert_int_equal(errno, EACCES);
        c[i] = kept;
    }
    assert_int_equal(verify(c, 0, body, &err), -1);
    assert_string_equal(err.text, "no MUNGE credential");
    assert_int_equal(verify("MUNGE:", 6, body, &err), -1);
    assert_int_equal(verify("\0\0\0", 3, body, &err), -1);
    memset(big, 'A', sizeof big);
    assert_int_equal(verify(big, AUTH_CREDENTIAL, body, &err), -1);
    assert_int_equal(verify(big, AUTH_CREDENTIAL + 1, body, &err), -1);
    assert_string_equal(err.text, "the MUNGE credential is too long");
    /* The genuine one was not used up by all that. */
    assert_int_equal(verify(c, strlen(c), body, &err), 0);
    free(c);
}

static void without_munged_there_is_a_sentence_that_names_the_socket(void **state)
{
    struct k3_error err;
    uid_t uid;
    gid_t gid;
    (void)state;
    struct auth *a = auth_create("/nonexistent/munge.sock", &err);
    assert_non_null(a);
    assert_null(auth_sign(a, header, sizeof header, body, sizeof body, &err));
    assert_int_equal(errno, EAGAIN);
    assert_non_null(strstr(err.text, "/nonexistent/munge.sock"));
    assert_int_equal(auth_verify(a, "MUNGE:AwQDAAA=:", 15, header, sizeof header, body, sizeof body, &uid, &gid, &err),
                     -1);
    assert_int_equal(errno, EAGAIN);
    auth_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_credential_is_good_once_for_its_message),
        cmocka_unit_test(other_bytes_are_refused),
        cmocka_unit_test(a_payload_of_another_kind_is_refused),
        cmocka_unit_test(an_expired_credential_is_refused),
        cmocka_unit_test(forged_credentials_are_refused),
        cmocka_unit_test(without_munged_there_is_a_sentence_that_names_the_socket),
    };
    return cmocka_run_group_tests_name("auth", tests, start_munged, stop_munged);
}
