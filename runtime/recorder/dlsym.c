/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym. It is entered in assembly, because what it answers to RTLD_NEXT and RTLD_DEFAULT depends on who
 * calls it, which it takes from its return address: unless the answer is a hook, we jump to the real
 * dlsym with the stack as we found it. Only the preloaded object has this file: a test program with the
 * hooks inside keeps the dlsym of the C library.
 */

#include "record.h"

#include <dlfcn.h>

#define NONE ((void *)-1)

/* There is no such function, only our hook of it: NULL, and an error for dlerror. */
static void *missing(const char *name)
{
    (void)plim__real_dlsym(RTLD_NEXT, name);
    return NONE;
}

/* What our dlsym answers; NULL: what the real one does; NONE: nothing. */
void *plim__dlsym_answer(void *handle, const char *name) __attribute__((visibility("hidden")));
void *plim__dlsym_answer(void *handle, const char *name)
{
    plim__find_dlsym();
    if (name == NULL || name[0] != 'c' || name[1] != 'u') {
        return NULL;
    }
    unsigned call = plim__hook_named(name);
    if (call == 0) {
        return NULL;
    }
    if (handle == RTLD_NEXT) {
        return plim__real(call) != NULL ? NULL : missing(name);
    }
    void *p = handle == RTLD_DEFAULT ? NULL : plim__real_dlsym(handle, name);
    if (handle == RTLD_DEFAULT || plim__own(p)) {
        /* A search that finds us first: there is such a function only if there is a real one. */
        return plim__real(call) != NULL ? plim__function(call) : missing(name);
    }
    if (p == NULL) {
        return NULL;
    }
    if (!plim__bind(call, p) && plim__hooks[call].level == PLIM__RUNTIME) {
        if (plim__on()) {
            PLIM__COUNT(unhooked); /* a second runtime in one process: its functions stay its own */
        }
        return NULL;
    }
    return plim__function(call);
}

/* dlsym: ask plim__dlsym_answer; NULL: jump to the real one; -1: answer NULL. */
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call plim__dlsym_answer\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    jnz 1f\n"
        "    jmp *plim__next_dlsym(%rip)\n"
        "1:  cmpq $-1, %rax\n"
        "    jne 2f\n"
        "    xorl %eax, %eax\n"
        "2:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        ".p2align 4\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    stp x29, x30, [sp, #-32]!\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset 29, -32\n"
        "    .cfi_offset 30, -24\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl plim__dlsym_answer\n"
        "    mov x9, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_restore 29\n"
        "    .cfi_restore 30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    cbnz x9, 1f\n"
        "    adrp x9, plim__next_dlsym\n"
        "    ldr x9, [x9, :lo12:plim__next_dlsym]\n"
        "    br x9\n"
        "1:  cmn x9, #1\n"
        "    csel x0, xzr, x9, eq\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
// cppcheck-suppress preprocessorErrorDirective
#    error "dlsym is written for x86-64 and aarch64"
#endif
