/* First come, first served; who comes back stands in front; limits are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "queue/order.h"
#include "queue/table.h"

enum { N = 5 };

struct fixture {
    struct table *table;
    struct order *order;
    struct request *r[N];
};

static int setup(void **state)
{
    static struct fixture f;

    f.table = table_create();
    f.order = order_create();
    for (int i = 0; i < N; i++) {
        struct k3_id id = {{0, (uint8_t)(N - i)}};
        struct message_submit submit = {.ask.max = (uint32_t)(100 * (N - i))};

        f.r[i] = request_create(&id, &submit, table_user(f.table, 0));
        table_add(f.table, f.r[i]);
        order_push(f.order, f.r[i]);
    }
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    order_destroy(f->order);
    table_destroy(f->table);
    return 0;
}

static struct order_limits context(uint64_t tokens)
{
    return (struct order_limits){.context = tokens, .choices = 1};
}

static void test_first_come_first_served(void **state)
{
    struct fixture *f = *state;
    struct order_limits any = context(UINT64_MAX);

    for (int i = 0; i < N; i++) {
        assert_int_equal(order_length(f->order), N - i);
        assert_int_equal(order_place(f->order, f->r[i]), 1);
        assert_ptr_equal(order_next(f->order, &any), f->r[i]);
        order_remove(f->order, f->r[i]);
    }
    assert_null(order_next(f->order, &any));
    assert_null(order_after(f->order, NULL));
}

static void test_who_comes_back_stands_in_front(void **state)
{
    struct fixture *f = *state;

    order_remove(f->order, f->r[0]);
    order_remove(f->order, f->r[1]);
    order_remove(f->order, f->r[2]);
    order_push(f->order, f->r[2]); /* in any order */
    order_push(f->order, f->r[0]);
    for (unsigned int i = 0, place = 0; i < N; i++)
        if (i != 1)
            assert_int_equal(order_place(f->order, f->r[i]), ++place);
    assert_ptr_equal(order_after(f->order, NULL), f->r[0]);
    assert_ptr_equal(order_after(f->order, f->r[0]), f->r[2]);
    assert_null(order_after(f->order, f->r[N - 1]));
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    struct order_limits enough = context(500), less = context(499), little = context(100), none = context(99);

    assert_ptr_equal(order_next(f->order, &enough), f->r[0]);
    assert_ptr_equal(order_next(f->order, &less), f->r[1]);
    assert_ptr_equal(order_next(f->order, &little), f->r[4]);
    assert_null(order_next(f->order, &none));
}

static void test_table(void **state)
{
    struct fixture *f = *state;
    struct k3_id unknown = {{9}};
    struct request *r = NULL;

    for (int i = 0; i < N; i++) {
        assert_ptr_equal(table_find(f->table, &f->r[i]->id), f->r[i]);
        assert_ptr_equal(r = table_after(f->table, r), f->r[i]);
        assert_int_equal(r->number, i + 1);
    }
    assert_null(table_after(f->table, r));
    assert_null(table_find(f->table, &unknown));
    assert_ptr_equal(table_user(f->table, 0), f->r[0]->user);
    assert_string_equal(table_user(f->table, 0)->name, "root");
    assert_string_equal(table_user(f->table, 4123456789)->name, "4123456789");

    order_remove(f->order, f->r[2]);
    table_remove(f->table, f->r[2]);
    assert_null(table_find(f->table, &f->r[2]->id));
    request_destroy(f->r[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first_come_first_served, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_comes_back_stands_in_front, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_table, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
