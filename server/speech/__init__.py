"""Speech for clients that write: every protocol is a codec over one object, the context."""
