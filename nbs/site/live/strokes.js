// From strokes to 8 x 8 grey values, as the digits of UCI were made from handwriting: NIST's
// programs stretched each to 20 x 32 pixels, brought its strokes to a like thickness and set it
// upright in a bitmap of 32 x 32, whose ink was then counted in blocks of 4 x 4 (0 to 16).
// Strokes are lists of points [x, y], y downwards, in any unit.

export const SIDE = 32, GRID = 8;
const WIDE = 20;          // columns that a digit is stretched to
const PEN = 0.13;         // thickness of a stroke by the height of the digit, to begin with
const INK = [270, 350];   // black pixels: strokes become thicker or thinner until they are so many
const STRETCH = 1.8;      // a digit grows in width at most so much more than in height
const SLOPE = 0.6;        // columns by row that a digit is sheared at most

// The smallest and the largest x and y of all points.
export function bounds(strokes) {
  const xs = strokes.flat().map(point => point[0]), ys = strokes.flat().map(point => point[1]);
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

// Square of the distance of (x, y) to the segment from a to b.
function distance(x, y, [ax, ay], [bx, by]) {
  const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
  const along = length ? Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
  return (x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2;
}

// What a round pen of this radius leaves, stretched to the bitmap: 1 is ink.
export function raster(strokes, radius) {
  const [left, top, right, bottom] = bounds(strokes);
  const width = right - left + 2 * radius, height = bottom - top + 2 * radius;
  const down = SIDE / height, across = Math.min(WIDE / width, STRETCH * down);
  const bitmap = new Uint8Array(SIDE * SIDE);
  const toColumn = x => SIDE / 2 + (x - (left + right) / 2) * across;
  const toRow = y => SIDE / 2 + (y - (top + bottom) / 2) * down;
  const range = (a, b, scale) => [  // the pixels that a segment may touch
    Math.max(0, Math.floor(Math.min(a, b) - radius * scale)),
    Math.min(SIDE - 1, Math.ceil(Math.max(a, b) + radius * scale))];
  for (const stroke of strokes) stroke.forEach((point, i) => {
    const before = stroke[Math.max(0, i - 1)];
    const [firstRow, lastRow] = range(toRow(before[1]), toRow(point[1]), down);
    const [first, last] = range(toColumn(before[0]), toColumn(point[0]), across);
    for (let row = firstRow; row <= lastRow; row++) {
      const y = (top + bottom) / 2 + (row + 0.5 - SIDE / 2) / down;
      for (let column = first; column <= last; column++) {
        const x = (left + right) / 2 + (column + 0.5 - SIDE / 2) / across;
        if (distance(x, y, before, point) <= radius * radius) bitmap[row * SIDE + column] = 1;
      }
    }
  });
  return bitmap;
}

export const ink = bitmap => bitmap.reduce((sum, pixel) => sum + pixel, 0);

// Rows pushed sideways until the first black pixels of the top and of the bottom row are in line.
export function upright(bitmap) {
  const first = row => bitmap.subarray(row * SIDE, (row + 1) * SIDE).indexOf(1);
  const rows = [...Array(SIDE).keys()].filter(row => first(row) >= 0);
  const found = new Uint8Array(SIDE * SIDE);
  if (!rows.length) return found;
  const top = rows[0], bottom = rows.at(-1);
  const slope = bottom > top ? (first(bottom) - first(top)) / (bottom - top) : 0;
  const limited = Math.max(-SLOPE, Math.min(SLOPE, slope));
  for (const row of rows) {
    const shift = Math.round(((top + bottom) / 2 - row) * limited);
    for (let column = 0; column < SIDE; column++) {
      const to = column + shift;
      if (bitmap[row * SIDE + column] && to >= 0 && to < SIDE) found[row * SIDE + to] = 1;
    }
  }
  return found;
}

// The bitmap of a digit, 32 x 32.
export function bitmap(strokes) {
  const inked = strokes.filter(stroke => stroke.length);
  if (!inked.length) return new Uint8Array(SIDE * SIDE);
  const [left, top, right, bottom] = bounds(inked);
  const size = Math.max(bottom - top, (right - left) / 2, 1e-6);
  let radius = PEN * size / 2, found = raster(inked, radius);
  for (let step = 0; step < 12 && (ink(found) < INK[0] || ink(found) > INK[1]); step++) {
    radius *= ink(found) < INK[0] ? 1.1 : 1 / 1.1;
    found = raster(inked, radius);
  }
  return upright(found);
}

// Black pixels in blocks of 4 x 4: 64 values of 0 to 16, by rows.
export function blocks(bitmap) {
  const greys = new Array(GRID * GRID).fill(0), block = SIDE / GRID;
  bitmap.forEach((pixel, i) => {
    const row = Math.floor(Math.floor(i / SIDE) / block), column = Math.floor(i % SIDE / block);
    greys[row * GRID + column] += pixel;
  });
  return greys;
}

// The grey values of a digit drawn by these strokes.
export const greys = strokes => blocks(bitmap(strokes));
