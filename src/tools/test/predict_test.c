/* predict_test.c - times of steps on a device that is known, and what a measured run says of one that is not */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/alloc.h"
#include "model/jsontext.h"
#include "tools/measured.h"
#include "tools/predict.h"

static struct k3_config k3;
static struct k3_error err;
static const struct predict_options plain = {.cost = {.dense = K3_BF16, .latents = K3_BF16, .value_bytes = 4},
                                             .exchange_us = -1};
static const struct layout tp16 = {16, 1, 1};

static void near(double got, double wanted, double share)
{
    if (fabs(got - wanted) > share * fabs(wanted))
        fail_msg("got %g, wanted %g within %g %%", got, wanted, 100 * share);
}

static int read_model(void **state)
{
    size_t len;
    char *text = jsontext_load(K3_TEST_ETC "/models/k3.json", 1 << 20, &len, &err);
    int rc = text ? k3_config_parse("k3.json", text, len, &k3, &err) : -1;
    (void)state;

    free(text);
    return rc;
}

static void load(struct device *d, const char *name, const char *set)
{
    char *path = k3_asprintf(K3_TEST_ETC "/devices/%s.conf", name);

    if (device_load(d, path, &err) < 0 || device_override(d, set, "test", &err) < 0)
        fail_msg("%s", err.text);
    free(path);
}

static double speed(const struct device *d, const struct predict_options *o, const struct layout *l, int batch)
{
    struct prediction p;

    predict(&k3, l, d, o, &(struct predict_step){.seqs = batch, .context = 4096}, &p);
    return p.tokens_per_second;
}

/* Ceilings of 16 nodes that read 240 GB/s each and do nothing else, with everything split evenly: tokens a second that
 * were computed by hand from SPEC 11.1 and 11.2, with 9.4 us a phase and 100 Gb/s links.  They hold for the exchanges
 * of SPEC 11.5 that scatter the experts' sum; as the forward pass makes them, one phase a layer more costs the smallest
 * step 4 %. */
static void ceilings_are_those_of_the_arithmetic(void **state)
{
    static const struct {
        enum k3_dtype dense;
        double b1, b8, b32;
    } table[] = {{K3_BF16, 24, 88, 143}, {K3_FP8_E4M3, 36, 104, 153}, {K3_MXFP4, 49, 115, 158}};
    struct predict_options o = plain;
    struct device d;
    (void)state;

    load(
        &d, "gb10",
        "bandwidth_gbs=240,share=1,layer_us=0,matrix_share=1,expert_tflops=60,step_rows=32,phase_us=9.4,link_gbs=12.5");
    o.cost.even = o.cost.scatter_latent = 1;
    o.cost.value_bytes = 2;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        o.cost.dense = table[i].dense;
        near(speed(&d, &o, &tp16, 1), table[i].b1, 0.03);
        near(speed(&d, &o, &tp16, 8), table[i].b8, 0.03);
        near(speed(&d, &o, &tp16, 32), table[i].b32, 0.03);
    }
    o.cost.dense = K3_BF16;
    near(speed(&d, &o, &(struct layout){8, 2, 1}, 1), 13, 0.03);
    near(speed(&d, &o, &(struct layout){4, 4, 1}, 1), 6.8, 0.03);
    near(speed(&d, &o, &(struct layout){1, 16, 1}, 1), 1.7, 0.03);
    near(speed(&d, &o, &(struct layout){16, 1, 16}, 1), 18, 0.03);
    device_clear(&d);
}

/* What every rank keeps whole costs a thirteenth of the speed: the ceilings above need it split. */
static void real_shares_are_slower_than_even_ones(void **state)
{
    struct predict_options even = plain;
    struct device d;
    (void)state;

    load(&d, "gb10", "share=1,layer_us=0");
    even.cost.even = 1;
    assert_true(speed(&d, &plain, &tp16, 1) < 0.94 * speed(&d, &even, &tp16, 1));
    device_clear(&d);
}

static void an_exchange_is_phases_and_bytes(void **state)
{
    struct predict_options o = plain;
    struct predict_step step = {.seqs = 1, .context = 0};
    struct prediction two, one, fixed;
    struct device d;
    double sums = 7168 * (1 + 2 * 93) + 3584 * 92, gathers = (3584 + 896) * 92 + 163840; /* numbers */
    (void)state;

    load(&d, "gb10", "phase_us=10,link_gbs=1");
    predict(&k3, &tp16, &d, &o, &step, &two);
    o.one_shot = 1;
    predict(&k3, &tp16, &d, &o, &step, &one);
    o.exchange_us = 73;
    predict(&k3, &tp16, &d, &o, &step, &fixed);
    assert_int_equal(two.exchanges, 372);
    assert_int_equal(two.phases, 2 * (1 + 2 * 93 + 92) + 92 + 1);
    near(two.latency_ms, two.phases * 0.010, 1e-9);
    near(two.wire_ms, 4 * (2 * sums + gathers) * 15 / 16 / 1e6, 1e-9);
    assert_int_equal(one.phases, 372);
    near(one.wire_ms, 4 * (15 * sums + gathers * 15 / 16) / 1e6, 1e-9);
    near(fixed.latency_ms, 372 * 0.073, 1e-9);
    assert_true(fixed.wire_ms == 0);
    device_clear(&d);
}

/* Stages work on different sequences at the same time; one sequence alone goes through all of them. */
static void a_pipeline_works_on_several_sequences(void **state)
{
    struct layout pp2 = {1, 2, 1};
    struct prediction one, two;
    struct device d;
    (void)state;

    load(&d, "gb10", "layer_us=0");
    predict(&k3, &pp2, &d, &plain, &(struct predict_step){.seqs = 1, .context = 0}, &one);
    predict(&k3, &pp2, &d, &plain, &(struct predict_step){.seqs = 2, .context = 0}, &two);
    near(two.tokens_per_second, 2 * one.tokens_per_second, 0.02); /* stages are not quite the same */
    near(two.step_ms, one.step_ms, 0.02);
    near(two.step_ms, two.memory_ms + two.compute_ms + two.latency_ms + two.wire_ms + two.wait_ms, 1e-9);
    device_clear(&d);
}

/* 2,048 tokens are bound by the matrix rate: SPEC 11.3 without the head's, 1.1 GFLOP a token in the delta rule's chunks
 * and 1,024 tokens before each on average, expanded. */
static void a_prompt_computes(void **state)
{
    struct predict_step step = {.seqs = 1, .prefill = 2048, .context = 0};
    struct predict_options o = plain;
    struct prediction p;
    struct device d;
    double gflop = 208.4 - 2.35 + 1.1 + 24 * 96 * 2 * (1024 * (192 + 128) + 512 * 256) / 1e9;
    (void)state;

    o.cost.even = 1;
    load(&d, "h200", "bandwidth_gbs=100000,share=1,matrix_tflops=10,matrix_share=1,layer_us=0");
    predict(&k3, &tp16, &d, &o, &step, &p);
    near(p.memory_ms + p.compute_ms, gflop * 2048 / 16 / 10e3 * 1e3, 0.002);
    near(p.tokens_per_second, 2048 / p.step_ms * 1e3, 1e-9);
    device_clear(&d);
}

static struct measured_run run_on(const struct device *d, int batch, double exchange_us, enum k3_dtype dense)
{
    struct measured_run r = {.tp = 16,
                             .batch = batch,
                             .context = 4096,
                             .dense = dense,
                             .exchange_us = exchange_us,
                             .copy_gbs = d->bandwidth_gbs.value};
    struct prediction p;

    measured_predict(&r, &k3, d, &plain, &p);
    r.ms_per_step = p.step_ms;
    return r;
}

/* One run of a device sets what it was made of, and with it every other run. */
static void one_run_calibrates_all(void **state)
{
    struct device truth, d;
    struct prediction p;
    (void)state;

    load(&truth, "h200", "share=0.95,layer_us=31");
    load(&d, "h200", "share=0.95,layer_us=5");
    struct measured_run r = run_on(&truth, 1, 10, K3_BF16), other = run_on(&truth, 32, 73, K3_FP8_E4M3);
    assert_int_equal(measured_calibrate(&r, &k3, &d, &plain, "a run", &err), 0);
    near(d.layer_us.value, 31, 1e-6);
    assert_string_equal(d.layer_us.basis, "measured");
    assert_string_equal(d.layer_us.source, "a run");
    assert_string_equal(d.share.basis, "assumed"); /* the run did not tell */
    measured_predict(&other, &k3, &d, &plain, &p);
    near(p.step_ms, other.ms_per_step, 1e-6);
    device_clear(&truth);
    device_clear(&d);
}

static void a_run_faster_than_the_share_raises_it(void **state)
{
    struct device truth, d;
    (void)state;

    load(&truth, "h200", "share=0.9,layer_us=0");
    load(&d, "h200", "share=0.6,layer_us=5");
    struct measured_run r = run_on(&truth, 1, 10, K3_BF16);
    assert_int_equal(measured_calibrate(&r, &k3, &d, &plain, "a run", &err), 0);
    near(d.share.value, 0.9, 1e-6);
    assert_string_equal(d.share.basis, "measured");
    assert_true(d.layer_us.value < 1e-6);
    r.prefill = 512;
    assert_int_equal(measured_calibrate(&r, &k3, &d, &plain, "a run", &err), -1);
    assert_non_null(strstr(err.text, "a prompt's chunk"));
    r.prefill = 0;
    r.ms_per_step *= 0.8;
    assert_int_equal(measured_calibrate(&r, &k3, &d, &plain, "a run", &err), -1);
    assert_non_null(strstr(err.text, "is less than copying"));
    device_clear(&truth);
    device_clear(&d);
}

static void write_run(char path[], const char *text)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void runs_are_read_from_json(void **state)
{
    static const char *const wrong[] = {
        "{\"runs\": []}",
        "{\"runs\": 3}",
        "{\"tp\": 16}",
        "[1]",
        "{\"tp\": 16, \"rank\": 16, \"batch\": 1, \"context\": 0, \"dense\": \"bf16\", \"exchange_us\": 0,"
        " \"ms_per_step\": 1, \"copy_GBps\": 4240}",
        "{\"tp\": 16, \"rank\": 0, \"batch\": 1, \"context\": 0, \"dense\": \"int4\", \"exchange_us\": 0,"
        " \"ms_per_step\": 1, \"copy_GBps\": 4240}"};
    char path[] = "/tmp/k3run.XXXXXX";
    struct measured m;
    (void)state;

    write_run(path, "{\"tp\": 16, \"rank\": 2, \"copy_GBps\": 4240, \"dense\": \"bf16\", \"context\": 4096, \"runs\": ["
                    "{\"batch\": 1, \"exchange_us\": 0, \"ms_per_step\": 4.5},"
                    "{\"batch\": 8, \"prefill\": 0, \"exchanges\": 372, \"bytes_ideal\": 2e10, \"exchange_us\": 9.4, "
                    "\"ms_per_step\": 9, \"dense\": \"fp8\"}]}");
    assert_int_equal(measured_load(&m, path, &err), 0);
    unlink(path);
    assert_int_equal(m.runs, 2);
    assert_true(m.run[0].dense == K3_BF16 && m.run[0].batch == 1 && m.run[0].rank == 2);
    assert_true(m.run[1].dense == K3_FP8_E4M3 && m.run[1].context == 4096);
    near(m.run[1].exchange_us, 9.4, 1e-12);
    assert_true(m.run[0].exchanges == 0 && m.run[1].exchanges == 372);
    near(m.run[1].bytes_ideal, 2e10, 1e-12);
    measured_clear(&m);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char other[] = "/tmp/k3run.XXXXXX";
        write_run(other, wrong[i]);
        assert_int_equal(measured_load(&m, other, &err), -1);
        assert_non_null(strstr(err.text, other));
        unlink(other);
    }
}

static void devices_are_overridden_by_name(void **state)
{
    struct device d;
    struct device_row row[DEVICE_ROWS];
    (void)state;

    load(&d, "gb10", "phase_us=73,link_gbs=25");
    near(d.phase_us.value, 73, 0);
    near(d.link_gbs.value, 25, 0);
    assert_string_equal(d.phase_us.basis, "assumed");
    assert_string_equal(d.phase_us.source, "test");
    device_rows(&d, row);
    for (int i = 0; i < DEVICE_ROWS; i++)
        assert_true(strcmp(row[i].value->basis, "measured") == 0 || strcmp(row[i].value->basis, "assumed") == 0);
    assert_int_equal(device_override(&d, "speed=3", "--set", &err), -1);
    assert_int_equal(device_override(&d, "share=2", "--set", &err), -1);
    assert_int_equal(device_override(&d, "share", "--set", &err), -1);
    assert_int_equal(device_override(&d, "", "--set", &err), -1);
    device_clear(&d);
    assert_int_equal(device_load(&d, "/nowhere/gb10.conf", &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ceilings_are_those_of_the_arithmetic),
        cmocka_unit_test(real_shares_are_slower_than_even_ones),
        cmocka_unit_test(an_exchange_is_phases_and_bytes),
        cmocka_unit_test(a_pipeline_works_on_several_sequences),
        cmocka_unit_test(a_prompt_computes),
        cmocka_unit_test(one_run_calibrates_all),
        cmocka_unit_test(a_run_faster_than_the_share_raises_it),
        cmocka_unit_test(runs_are_read_from_json),
        cmocka_unit_test(devices_are_overridden_by_name),
    };

    return cmocka_run_group_tests(tests, read_model, NULL);
}
