// What a browser keeps for the page: choices for the next visit, the token for this tab. One that
// keeps nothing (its user may say so) forgets them with the page.

function kept(storage) {
  const here = new Map();
  return {
    get(key) {
      try {
        return storage().getItem(key) ?? here.get(key) ?? null;
      } catch {
        return here.get(key) ?? null;
      }
    },
    set(key, value) {
      here.set(key, value);
      try {
        storage().setItem(key, value);
      } catch {
        // Then only as long as the page is open.
      }
    },
  };
}

export const choices = kept(() => localStorage);
export const secrets = kept(() => sessionStorage);
