/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_RAISE_H
#define PLIM_ALLOCATOR_RAISE_H

/** plim_torch_raise() - throw torch.OutOfMemoryError with that text through the caller's frames, which
 * must have unwind tables and hold no lock; on releases of PyTorch that cannot, a RuntimeError. Returns
 * only when the process has no PyTorch. */
void plim_torch_raise(const char *text);

#endif
