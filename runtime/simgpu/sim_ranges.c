/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free ranges: a treap by address, each node knowing the longest range below it.
 *
 * The longest range of each subtree makes "the lowest place where it fits" one walk down. Ranges
 * never touch: adding one merges it with its neighbours. Expected O(log n). All sets share one pool
 * of nodes. Threads: the caller holds sim_lock.
 */

#include "sim.h"

struct node {
    uint64_t start, len, longest;
    uint32_t left, right, heap, self;
};

static struct sim_pool nodes = SIM_POOL(struct node);

static struct node *at(uint32_t i)
{
    return sim_pool_at(&nodes, i);
}

static uint64_t longest(uint32_t i)
{
    return i == 0 ? 0 : at(i)->longest;
}

static void update(struct node *n)
{
    uint64_t l = longest(n->left), r = longest(n->right);
    uint64_t best = n->len > l ? n->len : l;
    n->longest = best > r ? best : r;
}

static uint32_t rotate_right(struct node *n)
{
    struct node *l = at(n->left);
    n->left = l->right;
    l->right = n->self;
    update(n);
    update(l);
    return l->self;
}

static uint32_t rotate_left(struct node *n)
{
    struct node *r = at(n->right);
    n->right = r->left;
    r->left = n->self;
    update(n);
    update(r);
    return r->self;
}

static uint32_t insert(uint32_t root, struct node *fresh)
{
    if (root == 0) {
        return fresh->self;
    }
    struct node *n = at(root);
    if (fresh->start < n->start) {
        n->left = insert(n->left, fresh);
        if (at(n->left)->heap > n->heap) {
            return rotate_right(n);
        }
    } else {
        n->right = insert(n->right, fresh);
        if (at(n->right)->heap > n->heap) {
            return rotate_left(n);
        }
    }
    update(n);
    return root;
}

static uint32_t join(uint32_t l, uint32_t r)
{
    if (l == 0 || r == 0) {
        return l + r;
    }
    struct node *a = at(l), *b = at(r);
    if (a->heap > b->heap) {
        a->right = join(a->right, r);
        update(a);
        return l;
    }
    b->left = join(l, b->left);
    update(b);
    return r;
}

/* Remove the node that starts at `start`; it exists. */
static uint32_t drop(uint32_t root, uint64_t start)
{
    struct node *n = at(root);
    if (start == n->start) {
        uint32_t rest = join(n->left, n->right);
        sim_pool_give(&nodes, root);
        return rest;
    }
    if (start < n->start) {
        n->left = drop(n->left, start);
    } else {
        n->right = drop(n->right, start);
    }
    update(n);
    return root;
}

/* The last range that starts at or before `start`, or NULL. */
static struct node *floor_of(uint32_t root, uint64_t start)
{
    struct node *best = NULL;
    while (root != 0) {
        struct node *n = at(root);
        if (n->start <= start) {
            best = n;
            root = n->right;
        } else {
            root = n->left;
        }
    }
    return best;
}

static struct node *starts_at(uint32_t root, uint64_t start)
{
    struct node *n = floor_of(root, start);
    return n != NULL && n->start == start ? n : NULL;
}

static int put(struct sim_ranges *set, uint64_t start, uint64_t len)
{
    uint32_t i;
    struct node *n = sim_pool_take(&nodes, &i);
    if (n == NULL) {
        return SIM_E_NOMEM;
    }
    set->seed = set->seed * 1664525u + 1013904223u; /* Numerical Recipes' generator */
    *n = (struct node){.start = start, .len = len, .longest = len, .heap = set->seed, .self = i};
    set->root = insert(set->root, n);
    return SIM_OK;
}

int sim_ranges_add(struct sim_ranges *set, uint64_t start, uint64_t len)
{
    if (len == 0) {
        return SIM_OK;
    }
    struct node *after = starts_at(set->root, start + len);
    if (after != NULL) {
        uint64_t first = after->start;
        len += after->len;
        set->root = drop(set->root, first);
    }
    struct node *before = start > 0 ? floor_of(set->root, start - 1) : NULL;
    if (before != NULL && before->start + before->len == start) {
        start = before->start;
        len += before->len;
        set->root = drop(set->root, start);
    }
    return put(set, start, len);
}

uint64_t sim_ranges_take(struct sim_ranges *set, uint64_t len)
{
    uint32_t root = set->root;
    if (len == 0 || longest(root) < len) {
        return SIM_NONE;
    }
    for (;;) {
        struct node *n = at(root);
        if (longest(n->left) >= len) {
            root = n->left;
        } else if (n->len >= len) {
            uint64_t start = n->start;
            sim_ranges_cut(set, start, len);
            return start;
        } else {
            root = n->right;
        }
    }
}

void sim_ranges_cut(struct sim_ranges *set, uint64_t start, uint64_t len)
{
    struct node *n = floor_of(set->root, start);
    if (n == NULL || n->start + n->len < start + len) {
        return;
    }
    uint64_t first = n->start, end = n->start + n->len;
    set->root = drop(set->root, first);
    if (first < start) {
        (void)put(set, first, start - first); /* the node just given back is there */
    }
    if (start + len < end) {
        (void)put(set, start + len, end - start - len);
    }
}

bool sim_ranges_has(const struct sim_ranges *set, uint64_t start, uint64_t len)
{
    const struct node *n = floor_of(set->root, start);
    return n != NULL && n->start + n->len >= start + len;
}

static uint64_t total(uint32_t root)
{
    return root == 0 ? 0 : at(root)->len + total(at(root)->left) + total(at(root)->right);
}

uint64_t sim_ranges_total(const struct sim_ranges *set)
{
    return total(set->root);
}
