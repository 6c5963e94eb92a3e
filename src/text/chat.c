#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "text/buf.h"
#include "text/pyjson.h"

#define TEXT_SEGMENT (-1)

/* A slice of the prompt's text; segments follow one another without gaps. */
struct segment {
    size_t at, len;
    int marker; /* enum vocab_special, or TEXT_SEGMENT */
};

struct chat_prompt {
    struct buf text;
    struct segment *segments;
    size_t n, cap;
    enum parser_start start;
};

/* What the rendering of one request carries along. */
struct render {
    struct chat_prompt *p;
    struct k3_error *err;
    bool thinking;
    const json_t *calls; /* tool_calls of the latest assistant message, or NULL */
    size_t results;      /* tool messages since then */
};

struct text {
    const char *s; /* NULL: absent or null */
    size_t n;
};

struct attribute {
    const char *key;
    struct text value;
};

static struct text text_of(const char *s)
{
    return (struct text){s, strlen(s)};
}

static bool text_is(struct text t, const char *s)
{
    return t.s && t.n == strlen(s) && memcmp(t.s, s, t.n) == 0;
}

static bool text_equal(struct text a, struct text b)
{
    return a.s && b.s && a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

/* ---- segments ---- */

static void put_segment(struct chat_prompt *p, struct text t, int marker)
{
    if (t.n == 0)
        return;
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->segments = k3_reallocarray(p->segments, p->cap, sizeof *p->segments);
    }
    p->segments[p->n++] = (struct segment){p->text.n, t.n, marker};
    buf_add(&p->text, t.s, t.n);
}

static void put_marker(struct chat_prompt *p, enum vocab_special marker)
{
    put_segment(p, text_of(vocab_slot_text(marker)), (int)marker);
}

static void put_text(struct chat_prompt *p, struct text t)
{
    put_segment(p, t, TEXT_SEGMENT);
}

static void put_string(struct chat_prompt *p, const char *s)
{
    put_text(p, text_of(s));
}

static void put_attribute(struct chat_prompt *p, const struct attribute *a)
{
    struct buf b = {0};

    buf_addc(&b, ' ');
    buf_adds(&b, a->key);
    put_text(p, (struct text){b.s, b.n});
    put_string(p, "=\"");
    b.n = 0;
    for (size_t i = 0; i < a->value.n; i++) {
        char c = a->value.s[i];
        if (c == '&')
            buf_adds(&b, "&amp;");
        else if (c == '"')
            buf_adds(&b, "&quot;");
        else
            buf_addc(&b, c);
    }
    put_text(p, (struct text){b.s, b.n});
    put_string(p, "\"");
    buf_free(&b);
}

/* Attributes without a value (s NULL) are left out. */
static void put_open(struct chat_prompt *p, const char *tag, const struct attribute *attributes, size_t n)
{
    put_marker(p, VOCAB_OPEN);
    put_string(p, tag);
    for (size_t i = 0; i < n; i++)
        if (attributes[i].value.s)
            put_attribute(p, &attributes[i]);
    put_marker(p, VOCAB_SEP);
}

static void put_close(struct chat_prompt *p, const char *tag)
{
    put_marker(p, VOCAB_CLOSE);
    put_string(p, tag);
    put_marker(p, VOCAB_SEP);
}

static void put_message_end(struct chat_prompt *p)
{
    put_close(p, "message");
    put_marker(p, VOCAB_END_OF_MSG);
}

static void put_internal(struct chat_prompt *p, const char *type, struct text body)
{
    const struct attribute attributes[] = {{"role", text_of("system")}, {"type", text_of(type)}};

    put_open(p, "message", attributes, 2);
    put_text(p, body);
    put_message_end(p);
}

/* ---- reading the request ---- */

/* A value for a sentence: short, printable, on one line. */
static const char *shown(struct text t, char out[48])
{
    size_t n = t.n < 40 ? t.n : 40;

    for (size_t i = 0; i < n; i++)
        out[i] = t.s[i] >= ' ' && t.s[i] <= '~' ? t.s[i] : '?';
    strcpy(out + n, t.n > n ? "..." : "");
    return out;
}

/* The string at object.key; absent or null leaves s NULL; another type is an error. */
static int get_text(const json_t *object, const char *path, const char *key, struct text *t, struct k3_error *err)
{
    const json_t *value = json_object_get(object, key);

    *t = (struct text){0};
    if (!value || json_is_null(value) || pyjson_string(value, &t->s, &t->n))
        return 0;
    return k3_errorf(err, "%s%s: must be a string", path, key);
}

static int get_bool(const json_t *object, const char *key, bool *value, struct k3_error *err)
{
    const json_t *found = json_object_get(object, key);

    if (!found || json_is_null(found))
        return 0;
    if (!json_is_boolean(found))
        return k3_errorf(err, "%s: must be true or false", key);
    *value = json_is_true(found);
    return 0;
}

/* The list at object.key; absent or null is NULL. */
static int get_list(const json_t *object, const char *path, const char *key, size_t max, const json_t **list,
                    struct k3_error *err)
{
    const json_t *found = json_object_get(object, key);

    *list = NULL;
    if (!found || json_is_null(found))
        return 0;
    if (!json_is_array(found))
        return k3_errorf(err, "%s%s: must be a list", path, key);
    if (json_array_size(found) > max)
        return k3_errorf(err, "%s%s: has %zu entries; at most %zu are taken", path, key, json_array_size(found), max);
    *list = found;
    return 0;
}

static int check_objects(const json_t *list, const char *path, const char *key, struct k3_error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return k3_errorf(err, "%s%s[%zu]: must be an object", path, key, i);
    return 0;
}

/* A call is {"id", "function": {"name", "arguments"}} or the function itself. */
static const json_t *function_of(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");

    return function ? function : call;
}

static struct text plain_text(const json_t *object, const char *key)
{
    struct text t = {0};

    pyjson_string(json_object_get(object, key), &t.s, &t.n);
    return t;
}

/* ---- tools ---- */

static int put_tools(struct render *r, const char *path, const json_t *tools, const char *introduction)
{
    struct buf body = {0};

    if (check_objects(tools, path, "tools", r->err) < 0)
        return -1;
    buf_adds(&body, introduction);
    buf_adds(&body, "\n\n```json\n");
    pyjson_dump(&body, tools, PYJSON_SORTED);
    buf_adds(&body, "\n```");
    put_internal(r->p, "tool-declare", (struct text){body.s, body.n});
    buf_free(&body);
    return 0;
}

static void put_arguments(struct chat_prompt *p, const json_t *arguments)
{
    struct buf b = {0};
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)arguments, key, value)
    {
        const struct attribute attributes[] = {{"key", text_of(key)}, {"type", text_of(pyjson_type(value))}};
        struct text t;
        put_open(p, "argument", attributes, 2);
        if (!pyjson_string(value, &t.s, &t.n)) {
            b.n = 0;
            pyjson_dump(&b, value, PYJSON_SPACED);
            t = (struct text){b.s, b.n};
        }
        put_text(p, t);
        put_close(p, "argument");
    }
    buf_free(&b);
}

/* Arguments given as the text of a JSON object, or as text that is no JSON and stays as it is. */
static int put_argument_text(struct render *r, const char *path, struct text t)
{
    static const struct attribute type[] = {{"type", {"object", 6}}};
    int rc = 0;

    if (pyjson_blank(t.s, t.n))
        return 0;
    json_t *arguments = pyjson_load(t.s, t.n, CHAT_DEPTH_MAX, NULL);
    if (!arguments) {
        put_open(r->p, "json", type, 1);
        put_text(r->p, t);
        put_close(r->p, "json");
    } else if (json_is_object(arguments)) {
        put_arguments(r->p, arguments);
    } else {
        rc = k3_errorf(r->err, "%sarguments: is JSON but not an object", path);
    }
    json_decref(arguments);
    return rc;
}

static int put_call(struct render *r, const char *message_path, const json_t *call, size_t i)
{
    const json_t *function = function_of(call);
    const json_t *arguments = json_object_get(function, "arguments");
    struct text name, t;
    char path[96], index[24];

    snprintf(path, sizeof path, "%stool_calls[%zu]%s", message_path, i, function == call ? "." : ".function.");
    if (get_text(function, path, "name", &name, r->err) < 0)
        return -1;
    if (!name.s)
        return k3_errorf(r->err, "%sname: is missing", path);
    snprintf(index, sizeof index, "%zu", i + 1);

    const struct attribute attributes[] = {{"tool", name}, {"index", text_of(index)}};
    put_open(r->p, "call", attributes, 2);
    if (json_is_object(arguments))
        put_arguments(r->p, arguments);
    else if (pyjson_string(arguments, &t.s, &t.n)) {
        if (put_argument_text(r, path, t) < 0)
            return -1;
    } else if (arguments && !json_is_null(arguments)) {
        return k3_errorf(r->err, "%sarguments: must be an object or the text of one", path);
    }
    put_close(r->p, "call");
    return 0;
}

/* ---- messages ---- */

static int put_part(struct render *r, const char *message_path, const json_t *part, size_t i)
{
    char path[96], value[48];
    struct text type, t;

    snprintf(path, sizeof path, "%scontent[%zu].", message_path, i);
    if (get_text(part, path, "type", &type, r->err) < 0)
        return -1;
    if (text_is(type, "image") || text_is(type, "image_url"))
        return k3_errorf(r->err, "%stype: images are not served; send text parts only", path);
    if (!text_is(type, "text"))
        return k3_errorf(r->err, "%stype: \"%s\" is not a kind of content; send text parts", path, shown(type, value));
    if (get_text(part, path, "text", &t, r->err) < 0)
        return -1;
    if (!t.s)
        return k3_errorf(r->err, "%stext: is missing", path);
    put_text(r->p, t);
    return 0;
}

static int put_content(struct render *r, const char *path, const json_t *message)
{
    const json_t *content = json_object_get(message, "content"), *parts;
    struct text t;

    if (pyjson_string(content, &t.s, &t.n)) {
        put_text(r->p, t);
        return 0;
    }
    if (content && !json_is_null(content) && !json_is_array(content))
        return k3_errorf(r->err, "%scontent: must be a string or a list of parts", path);
    if (get_list(message, path, "content", CHAT_PARTS_MAX, &parts, r->err) < 0 ||
        check_objects(parts, path, "content", r->err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (put_part(r, path, json_array_get(parts, i), i) < 0)
            return -1;
    return 0;
}

/* Open a message with its role and, where given and not empty, its name. */
static int put_message_open(struct render *r, const char *path, const json_t *message, const char *role)
{
    struct text name;

    if (get_text(message, path, "name", &name, r->err) < 0)
        return -1;
    if (name.n == 0)
        name.s = NULL;
    const struct attribute attributes[] = {{"role", text_of(role)}, {"name", name}};
    put_open(r->p, "message", attributes, 2);
    return 0;
}

static int put_user(struct render *r, const char *path, const json_t *message)
{
    if (put_message_open(r, path, message, "user") < 0 || put_content(r, path, message) < 0)
        return -1;
    put_message_end(r->p);
    return 0;
}

static int put_system(struct render *r, const char *path, const json_t *message)
{
    const json_t *tools;

    if (get_list(message, path, "tools", CHAT_TOOLS_MAX, &tools, r->err) < 0)
        return -1;
    if (json_array_size(tools) > 0)
        return put_tools(r, path, tools,
                         "## New Tools Available\n"
                         "The system dynamically extends the toolset via lazy-loading.\n"
                         "You have access to all existing and extended tools.\n"
                         "Here are the specs for the extended tools.");
    if (put_message_open(r, path, message, "system") < 0 || put_content(r, path, message) < 0)
        return -1;
    put_message_end(r->p);
    return 0;
}

static int put_assistant(struct render *r, const char *path, const json_t *message)
{
    struct text reasoning;

    if (get_list(message, path, "tool_calls", CHAT_CALLS_MAX, &r->calls, r->err) < 0 ||
        check_objects(r->calls, path, "tool_calls", r->err) < 0)
        return -1;
    r->results = 0;
    if (put_message_open(r, path, message, "assistant") < 0)
        return -1;
    if (r->thinking) {
        if (get_text(message, path, "reasoning_content", &reasoning, r->err) < 0)
            return -1;
        if (reasoning.n == 0 && get_text(message, path, "reasoning", &reasoning, r->err) < 0)
            return -1;
        put_open(r->p, "think", NULL, 0);
        if (!pyjson_blank(reasoning.s, reasoning.n))
            put_text(r->p, reasoning);
        put_close(r->p, "think");
    }
    put_open(r->p, "response", NULL, 0);
    if (put_content(r, path, message) < 0)
        return -1;
    put_close(r->p, "response");
    if (json_array_size(r->calls) > 0) {
        put_open(r->p, "tools", NULL, 0);
        for (size_t i = 0; i < json_array_size(r->calls); i++)
            if (put_call(r, path, json_array_get(r->calls, i), i) < 0)
                return -1;
        put_close(r->p, "tools");
    }
    put_message_end(r->p);
    return 0;
}

/* `matched` is the tool's name where the run of results could be matched to the calls by id. */
static int put_tool(struct render *r, const char *path, const json_t *message, struct text matched)
{
    struct text tool = matched;
    char index[24];

    if (!tool.s && get_text(message, path, "tool", &tool, r->err) < 0)
        return -1;
    if (!tool.s && get_text(message, path, "name", &tool, r->err) < 0)
        return -1;
    if (!tool.s && r->results < json_array_size(r->calls))
        tool = plain_text(function_of(json_array_get(r->calls, r->results)), "name");
    if (!tool.s)
        return k3_errorf(r->err,
                         "%stool: is missing, and neither tool_call_id nor the order of the assistant's tool_calls "
                         "tells which tool this is the result of",
                         path);
    snprintf(index, sizeof index, "%zu", ++r->results);
    const struct attribute attributes[] = {{"role", text_of("tool")}, {"tool", tool}, {"index", text_of(index)}};
    put_open(r->p, "message", attributes, 3);
    if (put_content(r, path, message) < 0)
        return -1;
    put_message_end(r->p);
    return 0;
}

/* ---- tool results in the order of their calls ---- */

struct result {
    const json_t *message;
    size_t at;   /* place in the request */
    size_t call; /* place of the call that it answers */
    struct text tool;
};

static int by_call(const void *a, const void *b)
{
    const struct result *x = a, *y = b;

    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Find the first call with the result's id. */
static bool match_result(struct result *result, const json_t *calls)
{
    const json_t *message = result->message;
    struct text id = plain_text(message, json_object_get(message, "tool_call_id") ? "tool_call_id" : "id");

    for (result->call = 0; result->call < json_array_size(calls); result->call++) {
        const json_t *call = json_array_get(calls, result->call);
        if (text_equal(id, plain_text(call, "id"))) {
            result->tool = plain_text(function_of(call), "name");
            return true;
        }
    }
    return false;
}

static bool is_role(const json_t *message, const char *role)
{
    return text_is(plain_text(message, "role"), role);
}

/* Render the run of tool messages that begins at `first`; returns how many there are, or -1.  If the id of each is that
 * of a call they go in the order of the calls, else as they stand. */
static ptrdiff_t put_results(struct render *r, const json_t *messages, size_t first)
{
    size_t n = 0;
    bool matched = true;
    ptrdiff_t rc = -1;

    while (first + n < json_array_size(messages) && is_role(json_array_get(messages, first + n), "tool"))
        n++;
    struct result *results = k3_calloc(n, sizeof *results);
    for (size_t i = 0; i < n; i++) {
        results[i] = (struct result){.message = json_array_get(messages, first + i), .at = first + i};
        matched = matched && match_result(&results[i], r->calls);
    }
    if (matched)
        qsort(results, n, sizeof *results, by_call);
    for (size_t i = 0; i < n; i++) {
        char path[48];
        snprintf(path, sizeof path, "messages[%zu].", results[i].at);
        if (put_tool(r, path, results[i].message, matched ? results[i].tool : (struct text){0}) < 0)
            goto out;
    }
    rc = (ptrdiff_t)n;
out:
    free(results);
    return rc;
}

static int put_messages(struct render *r, const json_t *messages)
{
    static const struct {
        const char *role;
        int (*put)(struct render *r, const char *path, const json_t *message);
    } roles[] = {{"user", put_user}, {"system", put_system}, {"assistant", put_assistant}};

    for (size_t at = 0; at < json_array_size(messages);) {
        const json_t *message = json_array_get(messages, at);
        struct text role;
        char path[48], value[48];
        size_t k = 0;

        if (is_role(message, "tool")) {
            ptrdiff_t n = put_results(r, messages, at);
            if (n < 0)
                return -1;
            at += (size_t)n;
            continue;
        }
        snprintf(path, sizeof path, "messages[%zu].", at);
        if (get_text(message, path, "role", &role, r->err) < 0)
            return -1;
        if (!role.s)
            return k3_errorf(r->err, "%srole: is missing", path);
        while (k < sizeof roles / sizeof *roles && !text_is(role, roles[k].role))
            k++;
        if (k == sizeof roles / sizeof *roles)
            return k3_errorf(r->err, "%srole: \"%s\" is none of system, user, assistant and tool", path,
                             shown(role, value));
        if (roles[k].put(r, path, message) < 0)
            return -1;
        at++;
    }
    return 0;
}

/* ---- the messages that the system puts around the conversation ---- */

static int put_effort(struct render *r, const json_t *request)
{
    static const char *const efforts[] = {"low", "medium", "high", "max"};
    struct text effort;
    char value[48];
    bool known = false;

    if (get_text(request, "", "thinking_effort", &effort, r->err) < 0)
        return -1;
    if (!effort.s)
        return 0;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        known |= text_is(effort, efforts[i]);
    if (!known)
        return k3_errorf(r->err, "thinking_effort: \"%s\" is none of low, medium, high and max", shown(effort, value));
    if (!r->thinking)
        return 0;
    char *body =
        k3_asprintf("`thinking_effort` guides on how much to think in your thinking channel (not including the "
                    "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
                    "Now the system is invoked with `thinking_effort=%.*s`.",
                    (int)effort.n, effort.s);
    put_internal(r->p, "thinking-effort", text_of(body));
    free(body);
    return 0;
}

static int put_tool_choice(struct render *r, const json_t *request)
{
    struct text choice;
    char value[48];

    if (json_is_object(json_object_get(request, "tool_choice")))
        return 0;
    if (get_text(request, "", "tool_choice", &choice, r->err) < 0)
        return -1;
    if (text_is(choice, "required"))
        put_internal(r->p, "tool-choice",
                     text_of("The system is invoked with `tool_choice=required`.\n"
                             "You MUST call tools in the next message."));
    else if (text_is(choice, "none"))
        put_internal(r->p, "tool-choice",
                     text_of("The system is invoked with `tool_choice=none`.\n"
                             "You MUST NOT call any tools in the next message."));
    else if (choice.s && !text_is(choice, "auto"))
        return k3_errorf(r->err, "tool_choice: \"%s\" is none of auto, none and required", shown(choice, value));
    return 0;
}

#define RAW_JSON                                                                                                       \
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."

static int put_schema(struct render *r, const json_t *format)
{
    const json_t *outer = json_object_get(format, "json_schema"), *schema;
    struct buf body = {0};

    if (!json_is_object(outer))
        return k3_errorf(r->err, "response_format.json_schema: must be an object");
    schema = json_object_get(outer, "schema");
    if (!schema)
        schema = json_object_get(outer, "json_schema");
    if (!schema)
        schema = outer;
    if (!json_is_object(schema))
        return k3_errorf(r->err, "response_format.json_schema.schema: must be an object");
    buf_adds(&body, "The system is invoked with `response_format=json_schema`.\n" RAW_JSON
                    "\nThe JSON data must match the following schema:\n```json\n");
    pyjson_dump(&body, schema, PYJSON_SORTED);
    buf_adds(&body, "\n```");
    put_internal(r->p, "response-format", (struct text){body.s, body.n});
    buf_free(&body);
    return 0;
}

static int put_response_format(struct render *r, const json_t *request)
{
    const json_t *format = json_object_get(request, "response_format");
    struct text type = {0};
    char value[48];

    if (!format || json_is_null(format))
        return 0;
    if (!pyjson_string(format, &type.s, &type.n)) {
        if (!json_is_object(format))
            return k3_errorf(r->err, "response_format: must be an object");
        if (get_text(format, "response_format.", "type", &type, r->err) < 0)
            return -1;
        if (!type.s)
            return k3_errorf(r->err, "response_format.type: is missing");
    }
    if (text_is(type, "text"))
        return 0;
    if (text_is(type, "json_object")) {
        put_internal(r->p, "response-format",
                     text_of("The system is invoked with `response_format=json_object`.\n" RAW_JSON));
        return 0;
    }
    if (text_is(type, "json_schema"))
        return put_schema(r, format);
    return k3_errorf(r->err, "response_format.type: \"%s\" is none of text, json_object and json_schema",
                     shown(type, value));
}

static int put_generation_prompt(struct render *r, const json_t *request)
{
    static const struct attribute role[] = {{"role", {"assistant", 9}}};
    bool wanted = true;

    if (get_bool(request, "add_generation_prompt", &wanted, r->err) < 0)
        return -1;
    if (!wanted)
        return 0;
    put_open(r->p, "message", role, 1);
    put_open(r->p, r->thinking ? "think" : "response", NULL, 0);
    r->p->start = r->thinking ? PARSER_IN_THINK : PARSER_IN_RESPONSE;
    return 0;
}

/* The order of SPEC 8.2. */
static int put_request(struct render *r, const json_t *request)
{
    const json_t *messages, *tools;

    if (!json_is_object(request))
        return k3_errorf(r->err, "request: must be a JSON object");
    r->thinking = true;
    if (get_bool(request, "thinking", &r->thinking, r->err) < 0)
        return -1;
    if (get_list(request, "", "messages", CHAT_MESSAGES_MAX, &messages, r->err) < 0 ||
        get_list(request, "", "tools", CHAT_TOOLS_MAX, &tools, r->err) < 0)
        return -1;
    if (!messages)
        return k3_errorf(r->err, "messages: is missing");
    if (check_objects(messages, "", "messages", r->err) < 0)
        return -1;

    if (json_array_size(tools) > 0 &&
        put_tools(r, "", tools, "# Tools\nHere are the available tools, described in JSONSchema.") < 0)
        return -1;
    if (put_effort(r, request) < 0 || put_messages(r, messages) < 0 || put_tool_choice(r, request) < 0 ||
        put_response_format(r, request) < 0)
        return -1;
    return put_generation_prompt(r, request);
}

/* ---- */

struct chat_prompt *chat_render(const char *json, size_t len, struct k3_error *err)
{
    struct chat_prompt *p, *result = NULL;

    if (len > CHAT_BYTES_MAX) {
        k3_errorf(err, "request: has %zu bytes; at most %u are taken", len, CHAT_BYTES_MAX);
        return NULL;
    }
    json_t *request = pyjson_load(json, len, CHAT_DEPTH_MAX, err);
    if (!request) {
        k3_error_prefix(err, "request: not JSON: ");
        return NULL;
    }
    p = k3_zalloc(sizeof *p);
    struct render r = {.p = p, .err = err};
    if (put_request(&r, request) < 0)
        goto out;
    result = p;
    p = NULL;
out:
    chat_destroy(p);
    json_decref(request);
    return result;
}

void chat_destroy(struct chat_prompt *p)
{
    if (!p)
        return;
    buf_free(&p->text);
    free(p->segments);
    free(p);
}

size_t chat_segments(const struct chat_prompt *p)
{
    return p->n;
}

struct chat_segment chat_segment(const struct chat_prompt *p, size_t i)
{
    const struct segment *s = &p->segments[i];

    return (struct chat_segment){p->text.s + s->at, s->len, s->marker != TEXT_SEGMENT};
}

enum parser_start chat_start(const struct chat_prompt *p)
{
    return p->start;
}

const char *chat_text(const struct chat_prompt *p, size_t *len)
{
    *len = p->text.n;
    return p->text.s;
}

int chat_tokens(const struct chat_prompt *p, const struct vocab *v, struct tokens *out, struct k3_error *err)
{
    size_t before = out->n;

    for (size_t i = 0; i < p->n; i++) {
        const struct segment *s = &p->segments[i];
        if (s->marker != TEXT_SEGMENT) {
            tokens_push(out, vocab_special(v, (enum vocab_special)s->marker));
        } else if (vocab_encode(v, p->text.s + s->at, s->len, out, err) < 0) {
            out->n = before;
            return -1;
        }
    }
    return 0;
}
