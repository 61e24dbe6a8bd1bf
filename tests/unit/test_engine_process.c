/* SPDX-License-Identifier: Apache-2.0 */

/* Engines among processes, in a made-up /proc. */

#include "observe/engine_process.h"
#include "unit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static const struct plim_world world = {root, NULL};

static void make_folders(const char *path)
{
    char part[256];
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        (void)mkdir(part, 0777);
    }
}

static void put(const char *name, struct plim_str text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/proc/%s", root, name);
    make_folders(path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
    (void)fclose(f);
}

static void put_link(const char *name, const char *target)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/proc/%s", root, name);
    make_folders(path);
    (void)unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

static void put_process(unsigned pid, unsigned ppid, struct plim_str command, const char *net)
{
    char name[64], text[256];
    (void)snprintf(name, sizeof(name), "%u/stat", pid);
    (void)snprintf(text, sizeof(text), "%u (x) S %u 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 777 0 0 0\n",
                   pid, ppid);
    put(name, plim_str_from(text));
    (void)snprintf(name, sizeof(name), "%u/cmdline", pid);
    put(name, command);
    (void)snprintf(name, sizeof(name), "%u/ns/net", pid);
    put_link(name, net);
}

/*
 *   100 vllm serve --port 8001 (listens)      200 text-generation-launcher --port 3001
 *     +- 101 engine core, a user                +- 201 shard, a user
 *     +- 102 engine core, a user                +- 202 router (listens)
 *   300 llama-server, a user, in another namespace
 *   400 vllm serve --port 9999, a user: somebody else listens there
 */
static int make_world(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/plimsoll-engines-XXXXXX");
    assert_non_null(mkdtemp(root));
    put_process(100, 1,
                PLIM_STR("/usr/bin/python3\0/opt/bin/vllm\0serve\0m\0--port\0"
                         "8001\0"),
                "net:[1]");
    put_process(101, 100, PLIM_STR("VLLM::EngineCore_DP0\0"), "net:[1]");
    put_process(102, 100, PLIM_STR("VLLM::EngineCore_DP1\0"), "net:[1]");
    put_process(200, 1, PLIM_STR("text-generation-launcher\0--port=3001\0"), "net:[1]");
    put_process(201, 200, PLIM_STR("python3\0server.py\0"), "net:[1]");
    put_process(202, 200,
                PLIM_STR("text-generation-router\0--port\0"
                         "3001\0"),
                "net:[1]");
    put_process(300, 1, PLIM_STR("llama-server\0-m\0x.gguf\0"), "net:[2]");
    put_process(400, 1,
                PLIM_STR("vllm\0serve\0m\0--port\0"
                         "9999\0"),
                "net:[1]");
    put("200/task/200/children", PLIM_STR("201 202 "));
    put_link("self/ns/net", "net:[1]");
    put("self/net/tcp", PLIM_STR("  sl  local_address rem_address   st tx_queue rx_queue tr "
                                 "tm->when retrnsmt   uid  timeout inode\n"
                                 "   0: 00000000:1F41 00000000:0000 0A 00000000:00000000 "
                                 "00:00000000 00000000  0 0 5001 1 0 100\n"
                                 "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 "
                                 "00:00000000 00000000  0 0 5002 1 0 100\n"
                                 "   2: 0100007F:1F41 0100007F:9999 01 00000000:00000000 "
                                 "00:00000000 00000000  0 0 5003 1 0 100\n"
                                 "   3: 0A00000A:270F 00000000:0000 0A 00000000:00000000 "
                                 "00:00000000 00000000  0 0 5004 1 0 100\n"));
    put("self/net/tcp6",
        PLIM_STR(
            "  sl  local_address remote_address st\n"
            "   0: 00000000000000000000000001000000:0BB9 00000000000000000000000000000000:0000 0A "
            "00000000:00000000 00:00000000 00000000 0 0 6001 1 0 100\n"));
    put_link("100/fd/3", "socket:[5001]");
    put_link("101/fd/3", "socket:[5001]"); /* inherited */
    put_link("202/fd/9", "socket:[6001]");
    put_link("300/fd/3", "socket:[5002]"); /* the number means another socket there */
    put_link("400/fd/3", "socket:[5004]"); /* on an address that is not loopback */
    return 0;
}

static int remove_world(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command); // NOLINT(concurrency-mt-unsafe,cert-env33-c): the test's own folder
}

static struct plim_engine_tree read_tree(void)
{
    static const uint32_t users[] = {101, 102, 201, 300, 400, 555};
    struct plim_engine_tree tree = {0};
    assert_ok(plim_engine_tree_read(&world, users, PLIM_COUNT_OF(users), NULL, 0, &tree, NULL));
    return tree;
}

static void the_parent_that_listens_answers_for_its_children(void **state)
{
    (void)state;
    struct plim_engine_tree tree = read_tree();
    uint32_t worker[PLIM_ENGINE_WORKERS];
    assert_int_equal(plim_engine_listening(&tree, 8001), 100);
    assert_int_equal(plim_engine_workers(&tree, 100, worker), 2);
    assert_int_equal(worker[0], 101);
    assert_int_equal(worker[1], 102);
    assert_int_equal(plim_engine_listening(&tree, 8080), 0);
    plim_engine_tree_fini(&tree);
}

static void engines_are_found_where_they_listen_on_loopback(void **state)
{
    (void)state;
    struct plim_engine_tree tree = read_tree();
    unsigned found = 0;
    plim_vec_foreach (m, &tree.members) {
        const struct plim_engine_listener *l = plim_engine_place(&tree, m);
        found += l != NULL;
        if (m->pid == 100) {
            assert_true(l != NULL && l->port == 8001 && !l->v6);
        }
        if (m->pid == 200) {
            assert_true(l != NULL && l->port == 3001 && l->v6 && l->pid == 202);
        }
    }
    assert_int_equal(found, 3); /* 100, 200 and its router */
    plim_engine_tree_fini(&tree);
}

static void a_wanted_port_is_found_whoever_listens(void **state)
{
    (void)state;
    static const uint32_t users[] = {555, 666};
    struct plim_engine_tree tree = {0};
    put_process(666, 1, PLIM_STR("python3\0app.py\0"), "net:[1]");
    put_link("666/fd/7", "socket:[5002]");
    assert_ok(plim_engine_tree_read(&world, users, 2, NULL, 0, &tree, NULL));
    assert_int_equal(tree.listeners.n, 0);
    assert_ok(plim_engine_tree_read(&world, users, 2, (const uint16_t[]){8080}, 1, &tree, NULL));
    assert_int_equal(plim_engine_listening(&tree, 8080), 666);
    plim_engine_tree_fini(&tree);
}

static void command_lines_name_engine_and_port(void **state)
{
    (void)state;
    static const struct {
        struct plim_str command;
        enum plim_engine_kind kind;
        uint16_t port;
    } cases[] = {
        {PLIM_STR("vllm\0serve\0m\0"), PLIM_ENGINE_KIND_VLLM, 8000},
        {PLIM_STR("vllm\0bench\0serve\0"), PLIM_ENGINE_KIND_UNKNOWN, 0},
        {PLIM_STR("python\0-m\0vllm.entrypoints.openai.api_server\0--port=81\0"),
         PLIM_ENGINE_KIND_VLLM, 81},
        {PLIM_STR("python3\0-m\0sglang.launch_server\0--port\0"
                  "9\0"),
         PLIM_ENGINE_KIND_SGLANG, 9},
        {PLIM_STR("/a/llama-server\0--port\0"
                  "70000\0"),
         PLIM_ENGINE_KIND_LLAMACPP, 0},
        {PLIM_STR("tritonserver\0--metrics-port=8102\0--port\0"
                  "1\0"),
         PLIM_ENGINE_KIND_TRITON, 8102},
        {PLIM_STR("grep\0-r\0--\0-x\0tritonserver\0"), PLIM_ENGINE_KIND_UNKNOWN, 0},
        {PLIM_STR(""), PLIM_ENGINE_KIND_UNKNOWN, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        uint16_t port = 1;
        assert_int_equal(plim_engine_command(cases[i].command, &port), cases[i].kind);
        assert_int_equal(port, cases[i].port);
    }
}

static void a_machine_without_users_is_not_looked_at(void **state)
{
    (void)state;
    struct plim_engine_tree tree = {0};
    assert_ok(plim_engine_tree_read(&world, NULL, 0, NULL, 0, &tree, NULL));
    assert_int_equal(tree.members.n, 0);
    assert_int_equal(tree.listeners.n, 0);
    plim_engine_tree_fini(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parent_that_listens_answers_for_its_children),
        cmocka_unit_test(engines_are_found_where_they_listen_on_loopback),
        cmocka_unit_test(a_wanted_port_is_found_whoever_listens),
        cmocka_unit_test(command_lines_name_engine_and_port),
        cmocka_unit_test(a_machine_without_users_is_not_looked_at),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("engine_process", tests, make_world, remove_world);
}
