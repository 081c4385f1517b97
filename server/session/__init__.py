"""One live conversation as a pure state machine: client events, emissions, playout and time in, commands out."""
