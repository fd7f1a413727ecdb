// The weighted mean of AFT on a small grid, by the formula, for the page on AFT's variants:
// y_t = sum_t' exp(k_t' + w_tt') v_t' / sum_t' exp(k_t' + w_tt'). No gate, one channel.

export const VARIANTS = ['simple', 'full', 'local', 'conv'];

// Row and column of a token.
export const position = (token, width) => [Math.floor(token / width), token % width];

// Biases of a variant as rows of n numbers: `free` holds one for each pair of tokens, `kernel` one
// for each offset, (2 width - 1) by (2 width - 1), `reach` says how far local and conv look.
export function biases(variant, {width, free, kernel, reach}) {
  const n = width * width;
  return Array.from({length: n}, (_, t) => Array.from({length: n}, (_, other) => {
    if (variant === 'simple') return 0;
    if (variant === 'full') return free[t][other];
    const [row, column] = position(t, width), [otherRow, otherColumn] = position(other, width);
    const down = otherRow - row, right = otherColumn - column;
    if (Math.max(Math.abs(down), Math.abs(right)) >= reach) return 0;
    if (variant === 'local') return free[t][other];
    return kernel[offset(down, right, width)];
  }));
}

// Where the bias of an offset stands in the kernel.
export const offset = (down, right, width) =>
  (down + width - 1) * (2 * width - 1) + right + width - 1;

// The weights that one token gives to all: they are positive and sum to 1.
export function weights(keys, biasesOfToken) {
  const sums = keys.map((key, other) => key + biasesOfToken[other]);
  const top = Math.max(...sums);  // exp of a large number would be infinite
  const raised = sums.map(sum => Math.exp(sum - top));
  const total = raised.reduce((a, b) => a + b);
  return raised.map(one => one / total);
}

// The mean that each token reads.
export function means(keys, allBiases, values) {
  return allBiases.map(row =>
    weights(keys, row).reduce((sum, weight, other) => sum + weight * values[other], 0));
}

// The tokens whose bias changes when that of the pair (t, other) is dragged: all pairs of the same
// offset in conv, that pair alone otherwise; `null` where the variant has no bias.
export function setBias(variant, state, t, other, value) {
  const {width, reach} = state;
  const [row, column] = position(t, width), [otherRow, otherColumn] = position(other, width);
  const down = otherRow - row, right = otherColumn - column;
  const far = Math.max(Math.abs(down), Math.abs(right)) >= reach;
  if (variant === 'simple' || (variant !== 'full' && far)) return false;
  if (variant === 'conv') state.kernel[offset(down, right, width)] = value;
  else state.free[t][other] = value;
  return true;
}
