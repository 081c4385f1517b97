"""OpenAI Realtime over WebRTC: sound as tracks, events over a data channel, the same session core behind them."""
