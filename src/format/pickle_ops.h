/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_PICKLE_OPS_H
#define PLIM_FORMAT_PICKLE_OPS_H

/*
 * Every opcode of pickle protocols 0 to 5. Source: Lib/pickletools.py of CPython 3.14.
 *
 * X(name, byte, operand bytes of fixed size, class)
 *   DATA    makes or moves plain data: executed
 *   CODE    names or calls Python code, or fetches objects from elsewhere: refused, always
 *   BUFFER  takes data from outside the stream: refused, snapshots have none
 */
#define PLIM_PICKLE_OP_MAP(X)                                                                      \
    X(MARK, 0x28, 0, DATA)            /* ( */                                                      \
    X(STOP, 0x2e, 0, DATA)            /* . */                                                      \
    X(POP, 0x30, 0, DATA)             /* 0 */                                                      \
    X(POP_MARK, 0x31, 0, DATA)        /* 1 */                                                      \
    X(DUP, 0x32, 0, DATA)             /* 2 */                                                      \
    X(FLOAT, 0x46, 0, DATA)           /* F decimal line */                                         \
    X(INT, 0x49, 0, DATA)             /* I decimal line; 00 and 01 are booleans */                 \
    X(BININT, 0x4a, 4, DATA)          /* J i32 */                                                  \
    X(BININT1, 0x4b, 1, DATA)         /* K u8 */                                                   \
    X(LONG, 0x4c, 0, DATA)            /* L decimal line, L at its end */                           \
    X(BININT2, 0x4d, 2, DATA)         /* M u16 */                                                  \
    X(NONE, 0x4e, 0, DATA)            /* N */                                                      \
    X(PERSID, 0x50, 0, CODE)          /* P */                                                      \
    X(BINPERSID, 0x51, 0, CODE)       /* Q */                                                      \
    X(REDUCE, 0x52, 0, CODE)          /* R */                                                      \
    X(STRING, 0x53, 0, DATA)          /* S quoted line */                                          \
    X(BINSTRING, 0x54, 4, DATA)       /* T u32 bytes */                                            \
    X(SHORT_BINSTRING, 0x55, 1, DATA) /* U u8 bytes */                                             \
    X(UNICODE, 0x56, 0, DATA)         /* V escaped line */                                         \
    X(BINUNICODE, 0x58, 4, DATA)      /* X u32 bytes */                                            \
    X(APPEND, 0x61, 0, DATA)          /* a */                                                      \
    X(BUILD, 0x62, 0, CODE)           /* b */                                                      \
    X(GLOBAL, 0x63, 0, CODE)          /* c */                                                      \
    X(DICT, 0x64, 0, DATA)            /* d */                                                      \
    X(APPENDS, 0x65, 0, DATA)         /* e */                                                      \
    X(GET, 0x67, 0, DATA)             /* g decimal line */                                         \
    X(BINGET, 0x68, 1, DATA)          /* h u8 */                                                   \
    X(INST, 0x69, 0, CODE)            /* i */                                                      \
    X(LONG_BINGET, 0x6a, 4, DATA)     /* j u32 */                                                  \
    X(LIST, 0x6c, 0, DATA)            /* l */                                                      \
    X(OBJ, 0x6f, 0, CODE)             /* o */                                                      \
    X(PUT, 0x70, 0, DATA)             /* p decimal line */                                         \
    X(BINPUT, 0x71, 1, DATA)          /* q u8 */                                                   \
    X(LONG_BINPUT, 0x72, 4, DATA)     /* r u32 */                                                  \
    X(SETITEM, 0x73, 0, DATA)         /* s */                                                      \
    X(TUPLE, 0x74, 0, DATA)           /* t */                                                      \
    X(SETITEMS, 0x75, 0, DATA)        /* u */                                                      \
    X(BINFLOAT, 0x47, 8, DATA)        /* G f64, big-endian */                                      \
    X(EMPTY_TUPLE, 0x29, 0, DATA)     /* ) */                                                      \
    X(EMPTY_LIST, 0x5d, 0, DATA)      /* ] */                                                      \
    X(EMPTY_DICT, 0x7d, 0, DATA)      /* } */                                                      \
    X(BINBYTES, 0x42, 4, DATA)        /* B u32 bytes */                                            \
    X(SHORT_BINBYTES, 0x43, 1, DATA)  /* C u8 bytes */                                             \
    X(PROTO, 0x80, 1, DATA)           /* u8 */                                                     \
    X(NEWOBJ, 0x81, 0, CODE)                                                                       \
    X(EXT1, 0x82, 1, CODE)                                                                         \
    X(EXT2, 0x83, 2, CODE)                                                                         \
    X(EXT4, 0x84, 4, CODE)                                                                         \
    X(TUPLE1, 0x85, 0, DATA)                                                                       \
    X(TUPLE2, 0x86, 0, DATA)                                                                       \
    X(TUPLE3, 0x87, 0, DATA)                                                                       \
    X(NEWTRUE, 0x88, 0, DATA)                                                                      \
    X(NEWFALSE, 0x89, 0, DATA)                                                                     \
    X(LONG1, 0x8a, 1, DATA)            /* u8 bytes, two's complement, little-endian */             \
    X(LONG4, 0x8b, 4, DATA)            /* i32 bytes, the same */                                   \
    X(SHORT_BINUNICODE, 0x8c, 1, DATA) /* u8 bytes */                                              \
    X(BINUNICODE8, 0x8d, 8, DATA)      /* u64 bytes */                                             \
    X(BINBYTES8, 0x8e, 8, DATA)        /* u64 bytes */                                             \
    X(EMPTY_SET, 0x8f, 0, DATA)                                                                    \
    X(ADDITEMS, 0x90, 0, DATA)                                                                     \
    X(FROZENSET, 0x91, 0, DATA)                                                                    \
    X(NEWOBJ_EX, 0x92, 0, CODE)                                                                    \
    X(STACK_GLOBAL, 0x93, 0, CODE)                                                                 \
    X(MEMOIZE, 0x94, 0, DATA)                                                                      \
    X(FRAME, 0x95, 8, DATA)      /* u64 length of the frame: not needed */                         \
    X(BYTEARRAY8, 0x96, 8, DATA) /* u64 bytes */                                                   \
    X(NEXT_BUFFER, 0x97, 0, BUFFER)                                                                \
    X(READONLY_BUFFER, 0x98, 0, BUFFER)

enum plim_pickle_op {
#define PLIM__X(name, byte, operand, cls) PLIM_OP_##name = byte,
    PLIM_PICKLE_OP_MAP(PLIM__X)
#undef PLIM__X
};

#endif
