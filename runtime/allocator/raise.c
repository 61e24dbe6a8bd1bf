/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C++ exception from C. PyTorch turns c10::OutOfMemoryError into torch.OutOfMemoryError; its library
 * exports the constructor, and the C++ runtime is in the process already. Everything is looked up, so
 * that the plug-in needs neither to be linked nor to be loaded after them.
 * Source: Itanium C++ ABI 2.4 (throwing), symbols of libc10.so 2.14.1; std::string as libstdc++ has it
 * since GCC 5: pointer, length, 16 bytes of room for short texts.
 */

#include "raise.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define OBJECT 1024 /* bytes, more than any c10::Error has had */

struct cxx_string {
    char *text;
    size_t length;
    char small[16];
};

struct source_location {
    const char *function, *file;
    uint32_t line;
};

struct cxx {
    void *(*allocate)(size_t);
    void (*deallocate)(void *);
    void *(*exception)(size_t);
    void (*raise)(void *, void *, void (*)(void *)); /* does not return */
};

struct thrown {
    void (*make)(void *, struct source_location, struct cxx_string *);
    void *type;
};

static void *look(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* A function pointer out of dlsym's object pointer. */
#define FIND(library, name, target)                                                                \
    do {                                                                                           \
        void *found_ = look(library, name);                                                        \
        memcpy(&(target), &found_, sizeof found_);                                                 \
    } while (0)

/* The destructor is the first entry of the table of virtual functions of every std::exception. */
static void destroy(void *error)
{
    void (**functions)(void *) = *(void (***)(void *))error;
    functions[0](error);
}

static void throw_out_of_memory(const struct cxx *cxx, const struct thrown *t, const char *text)
{
    struct cxx_string s = {.length = strlen(text)};
    s.text = cxx->allocate(s.length + 1);
    memcpy(s.text, text, s.length + 1);
    size_t room = s.length;
    memcpy(s.small, &room, sizeof room); /* capacity, for a text that is not short */
    void *error = cxx->exception(OBJECT);
    memset(error, 0, OBJECT);
    t->make(error, (struct source_location){"plimsoll_alloc", "plimsoll", 0}, &s);
    if (s.text != s.small) {
        cxx->deallocate(s.text);
    }
    cxx->raise(error, t->type, destroy);
}

void plim_torch_raise(const char *text)
{
    void *c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void *runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    struct cxx cxx = {0};
    struct thrown t = {0};
    void (*fail)(const char *, const char *, uint32_t, const char *);
    FIND(runtime, "_Znwm", cxx.allocate);
    FIND(runtime, "_ZdlPv", cxx.deallocate);
    FIND(runtime, "__cxa_allocate_exception", cxx.exception);
    FIND(runtime, "__cxa_throw", cxx.raise);
    FIND(c10,
         "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_"
         "traitsIcESaIcEEE",
         t.make);
    t.type = look(c10, "_ZTIN3c1016OutOfMemoryErrorE");
    if (cxx.allocate && cxx.deallocate && cxx.exception && cxx.raise && t.make && t.type &&
        strlen(text) > 15) {
        throw_out_of_memory(&cxx, &t, text);
    }
    FIND(c10, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_", fail);
    if (fail) {
        fail("plimsoll_alloc", "plimsoll", 0, text); /* throws c10::Error */
    }
}
