/* In the place of src/cuda/copy_async.cuh: the copies of the host are done at once. */
#pragma once

inline void copy_async(float *to, const void *from, int bytes)
{
    std::memset(to, 0, 16);
    std::memcpy(to, from, bytes);
}

inline void copies_done() {}
