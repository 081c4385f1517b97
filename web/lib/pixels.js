/** Pictures that come as rows of red, green and blue bytes, on a canvas. */

/**
 * @typedef {object} Pixels
 * @property {number} width
 * @property {number} height
 * @property {string} rgb in base64
 */

/**
 * Draw a picture; the canvas takes its size.
 * @param {HTMLCanvasElement} canvas @param {Pixels} picture
 */
export function draw(canvas, { width, height, rgb }) {
  const bytes = atob(rgb);
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    for (let colour = 0; colour < 3; colour++) image.data[4 * pixel + colour] = bytes.charCodeAt(3 * pixel + colour);
    image.data[4 * pixel + 3] = 255;
  }
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d")?.putImageData(image, 0, 0);
}
