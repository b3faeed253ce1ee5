// Components of a learned workload: eigenvectors of its second moment, each feature scaled to a mean square of 1.

const SWEEPS = 30;
const SMALL = 1e-14;

// The full symmetric matrix of an upper triangle, row by row.
function square(triangle, size) {
  const matrix = Array.from({ length: size }, () => new Array(size).fill(0));
  let at = 0;
  for (let row = 0; row < size; row += 1) {
    for (let column = row; column < size; column += 1) {
      matrix[row][column] = triangle[at];
      matrix[column][row] = triangle[at];
      at += 1;
    }
  }
  return matrix;
}

// Eigenvalues and eigenvectors of a symmetric matrix by Jacobi rotations (Golub, Van Loan: Matrix Computations, 8.5).
export function symmetric(given) {
  const size = given.length;
  const matrix = given.map((row) => [...row]);
  const vectors = matrix.map((_, row) => matrix.map((__, column) => Number(row === column)));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    let off = 0;
    for (let p = 0; p < size; p += 1) {
      for (let q = p + 1; q < size; q += 1) {
        off += matrix[p][q] ** 2;
        if (Math.abs(matrix[p][q]) > SMALL) rotate(matrix, vectors, p, q);
      }
    }
    if (off < SMALL) break;
  }
  return matrix.map((row, at) => ({ value: row[at], vector: vectors.map((each) => each[at]) }))
    .sort((one, other) => other.value - one.value);
}

function rotate(matrix, vectors, p, q) {
  const theta = (matrix[q][q] - matrix[p][p]) / (2 * matrix[p][q]);
  const tangent = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const cosine = 1 / Math.sqrt(tangent * tangent + 1);
  const sine = tangent * cosine;
  const turn = (row, first, second) => {
    const [one, other] = [row[first], row[second]];
    row[first] = cosine * one - sine * other;
    row[second] = sine * one + cosine * other;
  };
  for (const row of matrix) turn(row, p, q);
  const [above, below] = [matrix[p], matrix[q]];
  for (let column = 0; column < matrix.length; column += 1) {
    const [one, other] = [above[column], below[column]];
    above[column] = cosine * one - sine * other;
    below[column] = sine * one + cosine * other;
  }
  for (const row of vectors) turn(row, p, q);
}

// {features, components: [{share, vector}]} of a model; features that were always 0 are left out.
export function components(model) {
  const whole = square(model.moment, model.features.length);
  const kept = model.features.map((_, at) => at).filter((at) => whole[at][at] > 0);
  const scaled = kept.map((row) => kept.map((column) => whole[row][column] / Math.sqrt(whole[row][row] * whole[column][column])));
  const found = symmetric(scaled).map(({ value, vector }) => {
    const sign = vector.reduce((sum, each) => sum + each, 0) < 0 ? -1 : 1;
    return { share: Math.max(0, value) / kept.length, vector: vector.map((each) => sign * each) };
  });
  return { features: kept.map((at) => model.features[at]), components: found };
}
