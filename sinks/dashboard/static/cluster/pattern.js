// Patterns of the grid, so that its colours are distinct without seeing them as colours; style.css draws the same ones.

const ALPHA = 0.45;
const DRAWN = {
  full: { size: 5, draw: diagonal },
  r1: { size: 11, draw: diagonal },
  r2: { size: 8, draw: (context) => context.fillRect(3, 3, 2, 2) },
  r3: { size: 8, draw: (context) => context.fillRect(0, 4, 8, 1) },
};

// Canvas patterns by the name of a bin; a bin that has none is plain.
export function patterns(context, inks) {
  return Object.fromEntries(Object.entries(DRAWN).map(([name, { size, draw }]) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const drawing = tile.getContext("2d");
    drawing.fillStyle = drawing.strokeStyle = inks[name];
    drawing.globalAlpha = ALPHA;
    draw(drawing, size);
    return [name, context.createPattern(tile, "repeat")];
  }));
}

// Lines that go on in the tiles beside this one.
function diagonal(context, size) {
  context.beginPath();
  for (const at of [-size, 0, size]) {
    context.moveTo(at - 1, size + 1);
    context.lineTo(at + size + 1, -1);
  }
  context.stroke();
}
