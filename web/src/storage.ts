/** What the browser keeps for this page. Where it allows no storage, what is kept lives as long as the page does. */
class Kept {
  private readonly storage: Storage | undefined;
  private readonly memory = new Map<string, string>();

  constructor(name: "localStorage" | "sessionStorage") {
    this.storage = allowed(name);
  }

  get(key: string): string | null {
    return this.storage ? this.storage.getItem(key) : (this.memory.get(key) ?? null);
  }

  /** Returns whether it is kept after the page was closed: the storage may be full, or blocked. */
  set(key: string, text: string): boolean {
    if (!this.storage) {
      this.memory.set(key, text);
      return false;
    }
    try {
      this.storage.setItem(key, text);
      return true;
    } catch {
      return false;
    }
  }

  remove(key: string): void {
    this.memory.delete(key);
    this.storage?.removeItem(key);
  }
}

/** A browser that blocks cookies throws at the first look at a storage. */
function allowed(name: "localStorage" | "sessionStorage"): Storage | undefined {
  try {
    return window[name];
  } catch {
    return undefined;
  }
}

export const local = new Kept("localStorage");
/** What is gone when the tab is closed. */
export const session = new Kept("sessionStorage");
