/* mma.cpp - what a warp's lanes make of their operands */
#include "kernels/emu/mma.h"

void emu_mma_all(const struct emu_lanes *in, struct emu_lanes *out)
{
    float a[16][16], b[16][8], d[16][8] = {};

    for (int lane = 0; lane < 32; lane++) {
        const struct emu_mma *m = (const struct emu_mma *)in->lane[lane];
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++)
                a[lane / 4 + r % 2 * 8][lane % 4 * 2 + r / 2 * 8 + i] = emu_half(m->a[r], i);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                b[lane % 4 * 2 + r * 8 + i][lane / 4] = emu_half(m->b[r], i);
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++)
                d[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            ((float *)out->lane[lane])[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

static const uint16_t *emu_matrix_row(const struct emu_lanes *in, int lane)
{
    return *(const uint16_t *const *)in->lane[lane];
}

void emu_matrices_all(const struct emu_lanes *in, struct emu_lanes *out)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            memcpy(out->lane[lane] + i * 4, emu_matrix_row(in, i * 8 + lane / 4) + lane % 4 * 2, 4);
}

void emu_transposed_all(const struct emu_lanes *in, struct emu_lanes *out)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++)
            ((uint16_t *)out->lane[lane])[i] = emu_matrix_row(in, i / 2 * 8 + lane % 4 * 2 + i % 2)[lane / 4];
}
