// What this browser keeps of the page. Where it keeps nothing, as with cookies and data of sites blocked, the page goes on without.

export function read(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

// Tells whether the browser keeps it.
export function write(key, text) {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}
