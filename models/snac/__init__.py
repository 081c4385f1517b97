"""SNAC: sound from three streams of codes, each twice as fast as the one before (Siuzdak et al. 2024)."""
