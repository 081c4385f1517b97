/** What of each item's sound has come, and what of it was heard. Samples. */

export class Ledger {
  /** @param {number} rate Hz */
  constructor(rate) {
    this.rate = rate;
    /** @type {Map<string, {received: number, played: number, ended: boolean}>} */
    this.items = new Map();
  }

  /** Sound of an item has come. @param {string} item @param {number} samples */
  receive(item, samples) {
    this.of(item).received += samples;
  }

  /** No more sound of this item will come. @param {string} item */
  end(item) {
    this.of(item).ended = true;
  }

  /** @param {string} item @param {number} samples played since its beginning */
  play(item, samples) {
    const account = this.of(item);
    account.played = Math.max(account.played, Math.min(samples, account.received));
  }

  /**
   * Items that are not heard to their end, oldest first, with the ms that were heard of each.
   * @returns {{item: string, heard: number}[]}
   */
  unheard() {
    return [...this.items]
      .filter(([, account]) => account.received > 0 && account.played < account.received)
      .map(([item, account]) => ({ item, heard: Math.floor((account.played * 1000) / this.rate) }));
  }

  /** @param {string} item @returns {import("./protocol.js").Playing} */
  progress(item) {
    const account = this.of(item);
    return {
      item,
      played: (account.played * 1000) / this.rate,
      total: account.ended ? (account.received * 1000) / this.rate : null,
    };
  }

  /** The item is settled. @param {string} item */
  forget(item) {
    this.items.delete(item);
  }

  /** @param {string} item */
  of(item) {
    let account = this.items.get(item);
    if (!account) {
      account = { received: 0, played: 0, ended: false };
      this.items.set(item, account);
    }
    return account;
  }
}
