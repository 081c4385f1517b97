"""The OpenAI Realtime (GA) wire format as typed structs: client events, server events, the session object."""
